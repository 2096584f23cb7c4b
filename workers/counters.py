"""Counts of what happened in this process, for health answers and logs."""

from __future__ import annotations

import threading
from collections import Counter


class Counters:
    """Named counts; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()

    def add(self, name: str, number: int = 1) -> None:
        with self._lock:
            self._counts[name] += number

    def snapshot(self) -> dict[str, int]:
        with self._lock:
            return dict(self._counts)


counters = Counters()
