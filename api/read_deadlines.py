"""Ends reads that take too long in all, however steadily their bytes trickle."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

from sandloom.clock import monotonic_seconds

_TICK_SECONDS = 1.0


class Deadline:
    """One read with an end. ``passed``: it was cut off."""

    __slots__ = ("at", "passed", "sock")

    def __init__(self, sock: socket.socket, at: float) -> None:
        self.sock = sock
        self.at = at
        self.passed = False


class ReadDeadlines:
    """Shuts the reading side of a socket when its deadline passes (to the second): the blocked read sees its end."""

    def __init__(self) -> None:
        self._open: set[Deadline] = set()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def start(self, sock: socket.socket, seconds: float) -> Deadline:
        deadline = Deadline(sock, monotonic_seconds() + seconds)
        with self._lock:
            self._open.add(deadline)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="read-deadlines", daemon=True)
                self._thread.start()
        return deadline

    def stop(self, deadline: Deadline) -> None:
        with self._lock:
            self._open.discard(deadline)

    @contextlib.contextmanager
    def limit(self, sock: socket.socket | None, seconds: float) -> Iterator[Deadline | None]:
        """Without a socket (the server has read the body already) nothing is limited."""
        if sock is None:
            yield None
            return
        deadline = self.start(sock, seconds)
        try:
            yield deadline
        finally:
            self.stop(deadline)

    def _run(self) -> None:
        pause = threading.Event()
        while not pause.wait(_TICK_SECONDS):
            self._cut(monotonic_seconds())

    def _cut(self, now: float) -> None:
        # Under the lock: a deadline that was stopped is never cut, so a socket that serves its next request is safe.
        with self._lock:
            for deadline in [entry for entry in self._open if entry.at <= now]:
                deadline.passed = True
                self._open.discard(deadline)
                with contextlib.suppress(OSError):
                    deadline.sock.shutdown(socket.SHUT_RD)


#: One per process; the thread starts with the first use, which is after any fork.
READ_DEADLINES = ReadDeadlines()
