"""Who in this process waits for which exec."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Self

from sandloom.contracts.ports import Head
from sandloom.ids import ExecKey


class ExecWatch:
    """One reader's interest in one exec, from its creation until ``close`` or the end of the ``with`` block."""

    __slots__ = ("_changed", "_head", "_registry", "_woken", "key")

    def __init__(self, key: ExecKey, registry: Watchers) -> None:
        self.key = key
        self._registry = registry
        self._changed = threading.Condition(threading.Lock())
        self._head: Head | None = None
        self._woken = False

    def wait(self, timeout_seconds: float) -> Head | None:
        """The newest head since the last call, at once when there is one; None on timeout or after ``wake``.

        Both None and a head mean: read the rows behind the cursor.
        """
        with self._changed:
            self._changed.wait_for(self._has_news, timeout_seconds)
            head, self._head, self._woken = self._head, None, False
            return head

    def wake(self) -> None:
        """End the wait that runs now or, if none does, the next one."""
        with self._changed:
            self._woken = True
            self._changed.notify_all()

    def offer(self, head: Head) -> None:
        """A head arrived; heads may come late, twice or out of order."""
        with self._changed:
            known = self._head
            self._head = head if known is None else Head(max(known.seq, head.seq), known.terminal or head.terminal)
            self._changed.notify_all()

    def close(self) -> None:
        self._registry.forget(self)

    def _has_news(self) -> bool:
        return self._woken or self._head is not None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


#: Of how many execs ``read`` is asked at once.
REFRESH_KEYS = 200


class Watchers:
    """The watches of this process by exec: a head costs one look-up, however many execs are watched."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_key: dict[ExecKey, set[ExecWatch]] = {}
        self._told: dict[ExecKey, Head] = {}  # the newest head that the watches of a key had

    def __len__(self) -> int:
        with self._lock:
            return sum(len(watches) for watches in self._by_key.values())

    def watch(self, key: ExecKey) -> ExecWatch:
        watch = ExecWatch(key, self)
        with self._lock:
            self._by_key.setdefault(key, set()).add(watch)
        return watch

    def forget(self, watch: ExecWatch) -> None:
        with self._lock:
            watches = self._by_key.get(watch.key)
            if watches is None:
                return
            watches.discard(watch)
            if not watches:
                del self._by_key[watch.key]
                self._told.pop(watch.key, None)

    def deliver(self, key: ExecKey, head: Head) -> None:
        with self._lock:
            watches = list(self._by_key.get(key, ()))
            if watches:
                told = self._told.get(key, head)
                self._told[key] = Head(max(told.seq, head.seq), told.terminal or head.terminal)
        for watch in watches:
            watch.offer(head)

    def refresh(self, read: Callable[[Sequence[ExecKey]], Iterable[tuple[ExecKey, Head]]]) -> None:
        """Deliver what ``read`` finds of the watched execs and is news; what it raises is the caller's."""
        with self._lock:
            keys = list(self._by_key)
        for start in range(0, len(keys), REFRESH_KEYS):
            for key, head in read(keys[start : start + REFRESH_KEYS]):
                told = self._told.get(key)
                if told is None or head.seq > told.seq or head.terminal > told.terminal:
                    self.deliver(key, head)

    def wake_all(self) -> None:
        with self._lock:
            watches = [watch for group in self._by_key.values() for watch in group]
        for watch in watches:
            watch.wake()


class Counts:
    """Counters for diagnostics, by name."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: Counter[str] = Counter()

    def add(self, name: str) -> None:
        with self._lock:
            self._values[name] += 1

    def __getitem__(self, name: str) -> int:
        return self._values[name]

    def snapshot(self) -> dict[str, int]:
        with self._lock:
            return dict(self._values)
