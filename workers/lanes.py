"""Where work waits for a thread: one lane for commands, several for control, none behind another.

Lanes belong to the node, not to Celery: a consumer that reconnects or restarts finds them as they were.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from sandloom.clock import monotonic_seconds
from sandloom.ids import ExecKey, SandboxKey
from sandloom.telemetry import get_logger
from workers.turns import Turns

Job = Callable[[], object]

TENANT_BOUND_FACTOR = 2
#: Doorbells name sandboxes and tenants that need not exist, so there is an end to one for each.
HARD_BOUND_FACTOR = 4

#: A thread without work ends after this long.
IDLE_SECONDS = 30.0

log = get_logger("sandloom.workers.lanes")


class Placed(StrEnum):
    """What became of a job."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    FULL = "full"
    CLOSED = "closed"


def run_safely(job: Job) -> None:
    """A job that fails is logged; the thread goes on."""
    try:
        job()
    except Exception:
        log.exception("job failed")


@dataclass(slots=True, eq=False)
class _Item:
    key: ExecKey
    jobs: deque[Job] = field(default_factory=deque)
    running: bool = False


class CommandLane:
    """A thread for each running command, up to ``slots``; who waits takes turns; an exec is here at most once.

    Of what waits, about ``bound`` items are kept in memory: beyond that a sandbox gets no second one, and beyond twice
    as many a tenant gets none, so that a greedy one cannot keep others out. ``on_room`` is called, outside the lock,
    once there is room again for what was refused: the rows say what that was.
    """

    def __init__(self, slots: int, bound: int, on_room: Callable[[], None]) -> None:
        self._slots = slots
        self._bound = bound
        self._on_room = on_room
        self._items: dict[ExecKey, _Item] = {}
        self._turns: Turns[_Item] = Turns()
        self._waiting = 0
        self._idle = 0
        self._threads: set[threading.Thread] = set()
        self._refused = False
        self._closed = False
        self._changed = threading.Condition()

    @property
    def running(self) -> int:
        with self._changed:
            return len(self._items) - self._waiting

    @property
    def waiting(self) -> int:
        with self._changed:
            return self._waiting

    def submit(self, key: ExecKey, job: Job, *, must_run: bool = False) -> Placed:
        """Run ``job`` when the sandbox's turn comes and a slot is free.

        A second job for the same exec is refused, or with ``must_run`` run after the first one on the same thread.
        """
        with self._changed:
            if self._closed:
                return Placed.CLOSED
            item = self._items.get(key)
            if item is not None:
                if not must_run:
                    return Placed.DUPLICATE
                item.jobs.append(job)
                return Placed.ACCEPTED
            if not must_run and self._is_full_for(key.sandbox):
                self._refused = True
                return Placed.FULL
            self._append(_Item(key, deque([job])))
            return Placed.ACCEPTED

    def _is_full_for(self, sandbox: SandboxKey) -> bool:
        if self._waiting < self._bound:
            return False
        if self._turns.has_sandbox(sandbox) or self._waiting >= HARD_BOUND_FACTOR * self._bound:
            return True
        return self._waiting >= TENANT_BOUND_FACTOR * self._bound and self._turns.has_tenant(sandbox.tenant_id)

    def _append(self, item: _Item) -> None:
        self._items[item.key] = item
        self._turns.append(item.key.sandbox, item)
        self._waiting += 1
        if self._waiting > self._idle and len(self._threads) < self._slots:
            thread = threading.Thread(target=self._serve, name="command", daemon=True)
            self._threads.add(thread)
            thread.start()
        else:
            self._changed.notify()

    def _next(self) -> _Item | None:
        """The item whose turn it is; None when this thread shall end. Called with the lock held."""
        until = monotonic_seconds() + IDLE_SECONDS
        self._idle += 1
        try:
            while not self._turns:
                remaining = until - monotonic_seconds()
                if self._closed or remaining <= 0:
                    return None
                self._changed.wait(remaining)
        finally:
            self._idle -= 1
        item = self._turns.pop()
        self._waiting -= 1
        item.running = True
        return item

    def _serve(self) -> None:
        while True:
            with self._changed:
                item = self._next()
                if item is None:
                    self._threads.discard(threading.current_thread())
                    self._changed.notify_all()
                    return
            self._run(item)

    def _run(self, item: _Item) -> None:
        while True:
            with self._changed:
                if not item.jobs:
                    del self._items[item.key]
                    room = self._refused and self._waiting <= self._bound // 2
                    if room:
                        self._refused = False
                    break
                job = item.jobs.popleft()
            run_safely(job)
        if room:
            self._on_room()

    def close(self) -> None:
        """Take nothing more and forget what waits; what runs goes on. Idempotent."""
        with self._changed:
            self._closed = True
            for item in self._turns:
                self._items.pop(item.key, None)
            self._turns.clear()
            self._waiting = 0
            self._changed.notify_all()

    def join(self, timeout_seconds: float) -> bool:
        """Wait until nothing runs any more; whether that came in time. For a closed lane."""
        until = monotonic_seconds() + timeout_seconds
        with self._changed:
            while self._threads:
                remaining = until - monotonic_seconds()
                if remaining <= 0:
                    return False
                self._changed.wait(remaining)
            return True


class ControlLane:
    """A few threads, first in, first out."""

    def __init__(self, name: str, threads: int, bound: int) -> None:
        self.name = name
        self._jobs: deque[Job] = deque()
        self._bound = bound
        self._closed = False
        self._changed = threading.Condition()
        self._threads = [
            threading.Thread(target=self._serve, name=f"{name}-{number}", daemon=True) for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, job: Job) -> Placed:
        with self._changed:
            if self._closed:
                return Placed.CLOSED
            if len(self._jobs) >= self._bound:
                return Placed.FULL
            self._jobs.append(job)
            self._changed.notify()
            return Placed.ACCEPTED

    def _serve(self) -> None:
        while True:
            with self._changed:
                while not self._jobs:
                    if self._closed:
                        return
                    self._changed.wait()
                job = self._jobs.popleft()
            run_safely(job)

    def close(self) -> None:
        """Take nothing more; what waits is still done."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def join(self, timeout_seconds: float) -> bool:
        until = monotonic_seconds() + timeout_seconds
        for thread in self._threads:
            thread.join(max(0.0, until - monotonic_seconds()))
        return not any(thread.is_alive() for thread in self._threads)
