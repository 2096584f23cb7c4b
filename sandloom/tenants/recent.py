"""What was looked up a moment ago, so that a call need not ask the database again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from sandloom.clock import monotonic_seconds

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

#: What an operator changes is known everywhere after this.
KEPT_SECONDS = 5.0
MOST = 10_000


class Recent(Generic[K, V]):
    """Thread-safe, at most ``MOST`` answers of ``look_up``; each is given for ``kept_seconds``."""

    def __init__(
        self,
        look_up: Callable[[K], V],
        kept_seconds: float = KEPT_SECONDS,
        clock: Callable[[], float] = monotonic_seconds,
    ) -> None:
        self._look_up = look_up
        self._kept_seconds = kept_seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._known: dict[K, tuple[V, float]] = {}

    def get(self, key: K) -> V:
        """Raises what ``look_up`` raises, of which nothing is kept."""
        known = self._known.get(key)
        now = self._clock()
        if known is not None and now < known[1]:
            return known[0]
        value = self._look_up(key)
        with self._lock:
            self._known.pop(key, None)
            # From before the look: what changes while it is under way must not be missed for longer.
            self._known[key] = value, now + self._kept_seconds
            while len(self._known) > MOST:
                del self._known[next(iter(self._known))]
        return value

    def forget(self, key: K) -> None:
        with self._lock:
            self._known.pop(key, None)
