"""Counted places for requests that hold a thread for long, so that short calls always find one."""

from __future__ import annotations

import threading
from collections import Counter
from types import TracebackType
from typing import Self

from sandloom.contracts.ports import Watch


class Slots:
    """At most ``limit`` requests of one kind at once.

    A guest, which is a tenant by its own key, gets one more only while more are free than it holds, so that some are
    left for every other one. Operators may have them all.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._taken: set[Slot] = set()
        self._held: Counter[str | None] = Counter()
        self._lock = threading.Lock()
        self._closed = False

    def take(self, guest: str | None) -> Slot | None:
        """A place, or None when there is none for ``guest`` (None: an operator) or the process stops."""
        with self._lock:
            held = 0 if guest is None else self._held[guest]
            if self._closed or self._limit - len(self._taken) <= held:
                return None
            slot = Slot(self, guest)
            self._taken.add(slot)
            self._held[guest] += 1
            return slot

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def in_use(self) -> int:
        return len(self._taken)

    def close(self) -> None:
        """Give out no more, and wake everyone who waits in one."""
        with self._lock:
            self._closed = True
            taken = list(self._taken)
        for slot in taken:
            slot.wake()

    def _give_back(self, slot: Slot) -> None:
        with self._lock:
            if slot in self._taken:
                self._taken.remove(slot)
                self._held -= Counter((slot.guest,))


class Slot:
    """One taken place; ``release`` may be called more than once."""

    def __init__(self, owner: Slots, guest: str | None) -> None:
        self.guest = guest
        self._owner = owner
        self._watch: Watch | None = None

    def hold(self, watch: Watch) -> None:
        """``watch`` is what the request waits on: it is woken when the process stops."""
        self._watch = watch
        if self._owner.closed:
            watch.wake()

    @property
    def stopping(self) -> bool:
        return self._owner.closed

    def wake(self) -> None:
        watch = self._watch
        if watch is not None:
            watch.wake()

    def release(self) -> None:
        self._watch = None
        self._owner._give_back(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
