"""A breaker: while a server does not answer, its callers fail at once instead of waiting one after the other."""

from __future__ import annotations

import threading
from collections.abc import Callable

from sandloom.clock import monotonic_seconds


class Breaker:
    """Closed at first. A failure opens it; after ``open_seconds`` one caller may try again while the others still
    fail at once."""

    def __init__(self, open_seconds: float, clock: Callable[[], float] = monotonic_seconds) -> None:
        self._open_seconds = open_seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._is_open = False
        self._next_try_seconds = 0.0
        self.failures = 0  # how many were reported; who waits for a turn sees whether others failed meanwhile

    def allow(self) -> bool:
        """Whether the caller may try now. Whoever may, reports ``success`` or ``failure``."""
        if not self._is_open:
            return True
        with self._lock:
            now = self._clock()
            if self._is_open and now < self._next_try_seconds:
                return False
            self._next_try_seconds = now + self._open_seconds
            return True

    @property
    def is_open(self) -> bool:
        return self._is_open

    def success(self) -> None:
        if self._is_open:
            with self._lock:
                self._is_open = False

    def failure(self) -> bool:
        """Open the breaker; True when it was closed, which is the moment worth a log line."""
        with self._lock:
            was_closed = not self._is_open
            self._is_open = True
            self.failures += 1
            self._next_try_seconds = self._clock() + self._open_seconds
            return was_closed
