"""The broker of the embedded mode: queues in memory, and who is to be woken when something changes."""

from __future__ import annotations

import threading
from collections import Counter, deque

from kombu.transport.virtual import BrokerState


class Wakeup:
    """Tells one waiting thread that it is worth looking again. Nothing signalled between the look and the wait is
    missed: take ``version`` first, look, then wait for another one."""

    def __init__(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._version = 0

    @property
    def version(self) -> int:
        return self._version

    def signal(self) -> None:
        with self._changed:
            self._version += 1
            self._changed.notify_all()

    def wait(self, seen: int, timeout_seconds: float | None) -> bool:
        """Whether the version moved on from ``seen`` within the time (None: however long it takes)."""
        with self._changed:
            return self._changed.wait_for(lambda: self._version != seen, timeout_seconds)


class MessageStore:
    """Queues of serialized messages, first in, first out. ``lock`` also guards ``state`` (exchanges, bindings)."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.state = BrokerState()
        self._queues: dict[str, deque[str]] = {}
        self._auto_delete: set[str] = set()
        self._consumers: dict[str, Counter[Wakeup]] = {}

    def declare(self, queue: str, *, auto_delete: bool) -> None:
        with self.lock:
            self._queues.setdefault(queue, deque())
            if auto_delete:
                self._auto_delete.add(queue)

    def has(self, queue: str) -> bool:
        with self.lock:
            return queue in self._queues

    def put(self, queue: str, message: str) -> None:
        """To the end. A queue that nobody declared yet is made: a doorbell may come before the worker."""
        with self.lock:
            self._queues.setdefault(queue, deque()).append(message)
        self._wake(queue)

    def put_back(self, queue: str, message: str) -> None:
        """To the front, where an unacknowledged message came from; dropped when the queue is gone."""
        with self.lock:
            if queue not in self._queues:
                return
            self._queues[queue].appendleft(message)
        self._wake(queue)

    def take(self, queue: str) -> str | None:
        with self.lock:
            messages = self._queues.get(queue)
            return messages.popleft() if messages else None

    def size(self, queue: str) -> int:
        with self.lock:
            return len(self._queues.get(queue, ()))

    def purge(self, queue: str) -> int:
        """Remove all messages; returns how many."""
        with self.lock:
            messages = self._queues.get(queue)
            if messages is None:
                return 0
            count = len(messages)
            messages.clear()
            return count

    def delete(self, queue: str) -> None:
        """Remove the queue, its messages and every binding to it."""
        with self.lock:
            self._queues.pop(queue, None)
            self._auto_delete.discard(queue)
            for exchange, _, _ in list(self.state.queue_bindings(queue)):
                table = (self.state.exchanges or {}).get(exchange, {}).get("table", [])
                table[:] = [entry for entry in table if entry[2] != queue]
            self.state.queue_bindings_delete(queue)

    def add_consumer(self, queue: str, wakeup: Wakeup) -> None:
        with self.lock:
            self._consumers.setdefault(queue, Counter())[wakeup] += 1

    def remove_consumer(self, queue: str, wakeup: Wakeup) -> None:
        """The last consumer of an auto-delete queue takes the queue with it: nobody else would ever read it."""
        with self.lock:
            consumers = self._consumers.get(queue)
            if consumers is None:
                return
            consumers[wakeup] -= 1
            if consumers[wakeup] <= 0:
                del consumers[wakeup]
            if not consumers:
                del self._consumers[queue]
                if queue in self._auto_delete:
                    self.delete(queue)

    def clear(self) -> None:
        """Forget queues, exchanges and bindings; consumers stay registered."""
        with self.lock:
            self._queues.clear()
            self._auto_delete.clear()
            self.state.clear()

    def _wake(self, queue: str) -> None:
        with self.lock:
            wakeups = list(self._consumers.get(queue, ()))
        for wakeup in wakeups:
            wakeup.signal()
