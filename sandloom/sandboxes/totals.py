"""Totals of pages. Counting many rows costs more than the page itself, so a large total is counted once in a while."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable

from sandloom.clock import monotonic_seconds

#: Below this a total is always exact.
LARGE = 2_000
#: How old a large total may be.
KEPT_SECONDS = 10.0
_REMEMBERED = 256


class Totals:
    """Thread-safe; of a process."""

    def __init__(self, clock: Callable[[], float] = monotonic_seconds) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._known: dict[Hashable, tuple[int, float]] = {}

    def of(self, asked: Hashable, count: Callable[[], int]) -> int:
        """What ``count`` gave for the same question within KEPT_SECONDS, if that was large; else what it gives now."""
        with self._lock:
            known = self._known.get(asked)
        if known is not None and self._clock() - known[1] < KEPT_SECONDS:
            return known[0]
        number = count()
        with self._lock:
            self._known.pop(asked, None)
            if number >= LARGE:
                self._known[asked] = number, self._clock()
                while len(self._known) > _REMEMBERED:
                    del self._known[next(iter(self._known))]
        return number
