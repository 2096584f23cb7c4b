"""A command's output and notes on their way into the database: batched, in order, never cut inside a character.

``sink`` is called by the thread that pumps the command and only ever appends to memory. The flusher's threads write.
How much can wait is bounded, since the engine hands over no more than MAX_OUTPUT_BYTES per stream and bounds notes. One
write of a command is on its way at a time, and takes along whatever came while the one before it was: a database that
is far away costs a command its distance once or twice, however much it writes.
"""

from __future__ import annotations

import heapq
import itertools
import threading
from collections.abc import Callable, Sequence

from sandloom.clock import monotonic_seconds
from sandloom.telemetry import get_logger

log = get_logger("sandloom.workers.output")

Events = list[tuple[str, bytes]]

#: Kinds of which neighbours may become one event; each of another kind is an event of its own.
_TEXT = frozenset({"stdout", "stderr"})

FLUSH_SECONDS = 0.050
#: The first chunk after a pause goes out after this: a command that ends at once needs no write of its own for it.
FIRST_SECONDS = 0.010
FLUSH_BYTES = 64 * 1024
#: Largest ``data`` of one event.
EVENT_BYTES = 64 * 1024
#: One write carries at most this much; the rest follows.
BATCH_BYTES = 1024 * 1024
#: More alternations between the streams than this, while the database is slow, are merged into one event per stream.
MAX_RUNS = 1000
RETRY_SECONDS = 0.5


def complete_length(data: bytes | bytearray) -> int:
    """How many of ``data``'s bytes do not belong to a UTF-8 character that has begun and may still be completed."""
    for back in range(1, min(3, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 != 0x80:  # not a continuation byte
            needed = 2 if byte & 0xE0 == 0xC0 else 3 if byte & 0xF0 == 0xE0 else 4 if byte & 0xF8 == 0xF0 else 1
            return len(data) - back if needed > back else len(data)
    return len(data)


def pieces(data: bytes, limit: int = EVENT_BYTES) -> list[bytes]:
    """``data`` in parts of at most ``limit`` bytes that end between characters, where it is text."""
    parts = []
    while len(data) > limit:
        cut = complete_length(data[:limit]) or limit
        parts.append(data[:cut])
        data = data[cut:]
    return [*parts, data] if data else parts


def batches(events: Events) -> list[Events]:
    """``events`` in runs that one write carries; at least one run, which may be empty."""
    runs: list[Events] = [[]]
    size = 0
    for event in events:
        if runs[-1] and size + len(event[1]) > BATCH_BYTES:
            runs.append([])
            size = 0
        runs[-1].append(event)
        size += len(event[1])
    return runs


class OutputBuffer:
    """What one command wrote and the database does not have yet. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: list[tuple[str, bytearray]] = []
        self._merge_at = MAX_RUNS
        self.waiting_bytes = 0

    def add(self, kind: str, chunk: bytes) -> None:
        with self._lock:
            self.waiting_bytes += len(chunk)
            if len(self._runs) >= self._merge_at:
                self._merge()
            self._put(kind, chunk)

    def _put(self, kind: str, data: bytes | bytearray) -> None:
        if kind in _TEXT and self._runs and self._runs[-1][0] == kind:
            self._runs[-1][1].extend(data)
        else:
            self._runs.append((kind, bytearray(data)))

    def _merge(self) -> None:
        merged: dict[str, bytearray] = {}
        for kind, data in self._runs:
            if kind in _TEXT:
                merged.setdefault(kind, bytearray()).extend(data)
        self._runs = [*merged.items(), *(run for run in self._runs if run[0] not in _TEXT)]
        self._merge_at = len(self._runs) + MAX_RUNS

    def take(self, *, final: bool) -> Events:
        """The next batch of events. Unless ``final``, the begin of a character at the end of a stream stays here."""
        with self._lock:
            runs, self._runs, self._merge_at = self._runs, [], MAX_RUNS
            events: Events = []
            room = BATCH_BYTES
            while runs and room > 0:
                kind, data = runs.pop(0)
                if kind not in _TEXT:
                    events.append((kind, bytes(data)))
                    room = room if final else room - len(data)
                    continue
                following = next((run for name, run in runs if name == kind), None)
                whole = len(data) if final and following is None else complete_length(data)
                if not final:
                    whole = complete_length(data[: min(whole, room)]) if whole > room else whole
                if whole < len(data) and following is not None:
                    following[:0] = data[whole:]
                elif whole < len(data):
                    self._runs.append((kind, data[whole:]))
                events += [(kind, piece) for piece in pieces(bytes(data[:whole]))]
                room = room if final else room - whole
            self._runs += runs
            self.waiting_bytes = sum(len(data) for _, data in self._runs)
            return events

    def put_back(self, events: Sequence[tuple[str, bytes]]) -> None:
        """Undo a ``take`` whose write did not happen."""
        with self._lock:
            later, self._runs = self._runs, []
            for kind, data in events:
                self._put(kind, data)
            for kind, waiting in later:
                self._put(kind, waiting)
            self.waiting_bytes = sum(len(data) for _, data in self._runs)


class Flusher:
    """Threads that write the output of all commands, each when it is due: as many as writes are on their way at once,
    and at most ``max_threads``."""

    def __init__(self, max_threads: int = 8) -> None:
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._changed = threading.Condition()
        self._closed = False
        self._max_threads = max_threads
        self._busy = 0
        self._threads: list[threading.Thread] = []
        with self._changed:
            self._start()

    def _start(self) -> None:
        """One thread more, unless one is free or there may be no more."""
        if self._busy == len(self._threads) < self._max_threads and not self._closed:
            thread = threading.Thread(target=self._serve, name=f"flush-{len(self._threads)}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def schedule(self, at_seconds: float, write: Callable[[], None]) -> None:
        """Call ``write`` at that monotonic time."""
        with self._changed:
            heapq.heappush(self._due, (at_seconds, next(self._numbers), write))
            if self._due[0][2] is write:
                self._changed.notify()

    def _serve(self) -> None:
        while True:
            with self._changed:
                while True:
                    if self._closed:
                        return
                    wait = self._due[0][0] - monotonic_seconds() if self._due else None
                    if wait is not None and wait <= 0:
                        break
                    self._changed.wait(wait)
                write = heapq.heappop(self._due)[2]
                self._busy += 1
                self._start()
                if self._due:
                    self._changed.notify()
            try:
                write()
            except Exception:
                log.exception("output could not be written")
            with self._changed:
                self._busy -= 1

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            threads = list(self._threads)
        for thread in threads:
            thread.join(5.0)


class OutputWriter:
    """One command's sink. ``append(events) -> bool`` writes a batch; False means fenced, and ``on_fenced`` is called.

    ``append`` may raise: the batch is kept and tried again. It must itself find out about a commit whose answer was
    lost, so that a batch it raises for has not been written.
    """

    def __init__(self, flusher: Flusher, append: Callable[[Events], bool], on_fenced: Callable[[], None]) -> None:
        self._flusher = flusher
        self._append = append
        self._on_fenced = on_fenced
        self._buffer = OutputBuffer()
        self._lock = threading.Lock()
        self._scheduled_at: float | None = None
        self._last_flush = 0.0
        self._writing = threading.Lock()
        self._missed = False
        self._closed = False
        self._blocked_until = 0.0

    def sink(self, kind: str, chunk: bytes) -> None:
        """Take a chunk. Never waits for the database."""
        self._buffer.add(kind, chunk)
        # Said before the look: who writes looks for it after its release.
        self._missed = True
        if not self._writing.locked():
            self._schedule_next()

    def _schedule_next(self) -> None:
        now = monotonic_seconds()
        with self._lock:
            if self._buffer.waiting_bytes >= FLUSH_BYTES:
                due = now
            elif now - self._last_flush > FLUSH_SECONDS:
                due = now + FIRST_SECONDS
            else:
                due = self._last_flush + FLUSH_SECONDS
            self._schedule(due)

    def _schedule(self, due: float) -> None:
        if self._closed or (self._scheduled_at is not None and self._scheduled_at <= due):
            return
        due = max(due, self._blocked_until)
        self._scheduled_at = due
        self._flusher.schedule(due, self._flush)

    def _flush(self) -> None:
        with self._lock:
            if self._closed or self._scheduled_at is None or self._scheduled_at > monotonic_seconds():
                return  # a later schedule was replaced by an earlier one, which has flushed already
            self._scheduled_at = None
        self._missed = True
        if not self._writing.acquire(blocking=False):
            return
        self._missed = False
        try:
            self._write_batch()
        finally:
            self._writing.release()
            if self._missed:
                self._schedule_next()

    def _write_batch(self) -> None:
        if self._closed:
            return
        events = self._buffer.take(final=False)
        self._last_flush = monotonic_seconds()
        if not events:
            return
        try:
            appended = self._append(events)
        except Exception as error:
            log.warning("output waits for the database", error=type(error).__name__)
            self._buffer.put_back(events)
            self._blocked_until = monotonic_seconds() + RETRY_SECONDS
            return self._again(RETRY_SECONDS)
        if not appended:
            self._closed = True
            self._on_fenced()
        elif self._buffer.waiting_bytes >= FLUSH_BYTES:
            self._again(0.0)

    def _again(self, seconds: float) -> None:
        with self._lock:
            self._schedule(monotonic_seconds() + seconds)

    def finish(self) -> Events:
        """What is left, for the finishing transaction; nothing is written by this writer any more."""
        with self._lock:
            self._closed = True
        with self._writing:
            return self._buffer.take(final=True)
