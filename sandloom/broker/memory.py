"""kombu transport inside one process, for the embedded mode: ``sandloom-memory://``.

kombu's own memory transport asks again every second. This one waits for an event: a consumer wakes when a message is
put into one of its queues (also by fanout), when an acknowledgement or a larger prefetch count makes room, and when
its connection is closed. Messages travel as JSON, as they do over Redis. Nothing survives the process.

``sandloom-memory://localhost/name`` is a broker apart from the default one.
"""

from __future__ import annotations

import threading
from queue import Empty
from typing import Any

from kombu.transport import virtual
from kombu.utils.json import dumps, loads

from sandloom.broker.memory_store import MessageStore, Wakeup
from sandloom.clock import monotonic_seconds

_stores: dict[str, MessageStore] = {}
_stores_lock = threading.Lock()


def store_of(virtual_host: str | None) -> MessageStore:
    """The broker of that name, made when first asked for."""
    with _stores_lock:
        return _stores.setdefault((virtual_host or "").strip("/"), MessageStore())


def reset() -> None:
    """Forget every broker's queues and messages. For tests, between the lives of their workers."""
    with _stores_lock:
        stores = list(_stores.values())
    for store in stores:
        store.clear()


class QoS(virtual.QoS):
    """An acknowledgement comes from the thread that ran the task, while the consumer waits for room."""

    channel: Any
    prefetch_count: int

    def ack(self, delivery_tag: str) -> None:
        super().ack(delivery_tag)
        self._made_room()

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        super().reject(delivery_tag, requeue=requeue)
        self._made_room()

    def _made_room(self) -> None:
        if self.prefetch_count:  # 0: no bound, so nobody waits
            self.channel.wake()


class Channel(virtual.Channel):
    """A channel over the store of its connection."""

    QoS = QoS
    supports_fanout = True
    do_restore = True

    #: The transport; None once the channel is closed.
    connection: Any

    @property
    def store(self) -> MessageStore:
        store: MessageStore = self.connection.store
        return store

    def wake(self) -> None:
        connection = self.connection
        if connection is not None:
            connection.wakeup.signal()

    def exchange_declare(self, *args: Any, **kwargs: Any) -> Any:
        with self.store.lock:
            return super().exchange_declare(*args, **kwargs)

    def exchange_delete(self, *args: Any, **kwargs: Any) -> Any:
        with self.store.lock:
            return super().exchange_delete(*args, **kwargs)

    def queue_bind(self, *args: Any, **kwargs: Any) -> Any:
        with self.store.lock:
            return super().queue_bind(*args, **kwargs)

    def queue_unbind(self, *args: Any, **kwargs: Any) -> Any:
        with self.store.lock:
            return super().queue_unbind(*args, **kwargs)

    def queue_delete(self, queue: str, if_unused: bool = False, if_empty: bool = False, **kwargs: Any) -> None:
        with self.store.lock:
            if not (if_empty and self.store.size(queue)):
                self.store.delete(queue)

    def basic_consume(self, queue: str, *args: Any, **kwargs: Any) -> Any:
        tag = super().basic_consume(queue, *args, **kwargs)
        self.store.add_consumer(queue, self.connection.wakeup)
        self.wake()
        return tag

    def basic_cancel(self, consumer_tag: str) -> None:
        queue = self._tag_to_queue.get(consumer_tag)
        consumed = consumer_tag in self._consumers
        super().basic_cancel(consumer_tag)
        if consumed and queue is not None:
            self.store.remove_consumer(queue, self.connection.wakeup)

    def basic_qos(self, *args: Any, **kwargs: Any) -> None:
        super().basic_qos(*args, **kwargs)
        self.wake()

    def _lookup(self, exchange: str, routing_key: str, default: str | None = None) -> Any:
        with self.store.lock:
            return super()._lookup(exchange, routing_key, default)

    def _new_queue(self, queue: str, auto_delete: bool = False, **kwargs: Any) -> None:
        self.store.declare(queue, auto_delete=bool(auto_delete))

    def _has_queue(self, queue: str, **kwargs: Any) -> bool:
        return self.store.has(queue)

    def _queue_bind(self, *args: Any) -> None:
        """Bindings live in the state that all connections share."""

    def _put(self, queue: str, message: dict[str, Any], **kwargs: Any) -> None:
        self.store.put(queue, dumps(message))

    def _put_fanout(self, exchange: str, message: dict[str, Any], routing_key: str, **kwargs: Any) -> None:
        data = dumps(message)
        for queue in self._lookup(exchange, routing_key):
            self.store.put(queue, data)

    def _get(self, queue: str, timeout: float | None = None) -> dict[str, Any]:
        data = self.store.take(queue)
        if data is None:
            raise Empty
        message: dict[str, Any] = loads(data)
        message["taken_from"] = queue
        return message

    def _restore(self, message: Any) -> None:
        """Back to the front of the queue it was taken from, which for a fanout is only one of those it went to."""
        raw = dict(message._raw)
        queue = raw.pop("taken_from")
        raw["headers"]["redelivered"] = True
        raw["properties"]["delivery_info"]["redelivered"] = True
        self.store.put_back(queue, dumps(raw))

    def _size(self, queue: str) -> int:
        return self.store.size(queue)

    def _purge(self, queue: str) -> int:
        return self.store.purge(queue)


class Transport(virtual.Transport):
    """One connection: its channels, and the event its thread waits for."""

    Channel = Channel
    driver_type = "memory"
    driver_name = "sandloom-memory"
    implements = virtual.Transport.implements.extend(
        asynchronous=False,
        exchange_type=frozenset(["direct", "topic", "fanout"]),
        heartbeats=False,
    )

    def __init__(self, client: Any, **kwargs: Any) -> None:
        super().__init__(client, **kwargs)
        self.store = store_of(client.virtual_host)
        self.state = self.store.state
        self.wakeup = Wakeup()
        self._closed = False

    def driver_version(self) -> str:
        return "1"

    def establish_connection(self) -> Any:
        self._closed = False
        return super().establish_connection()

    def close_connection(self, connection: Any) -> None:
        self._closed = True
        super().close_connection(connection)
        self.wakeup.signal()

    def drain_events(self, connection: Any, timeout: float | None = None, **kwargs: Any) -> None:
        """Deliver one message. ``TimeoutError`` (``socket.timeout``) when none came within ``timeout`` seconds,
        ``ConnectionResetError`` when the connection was closed meanwhile."""
        deadline_seconds = None if timeout is None else monotonic_seconds() + timeout
        cycle: Any = self.cycle
        while True:
            seen = self.wakeup.version
            try:
                cycle.get(self._deliver, timeout=timeout)
            except Empty:
                pass
            else:
                return
            if self._closed:
                raise ConnectionResetError("the connection was closed")
            left_seconds = None if deadline_seconds is None else deadline_seconds - monotonic_seconds()
            if left_seconds is not None and left_seconds <= 0:
                raise TimeoutError
            self.wakeup.wait(seen, left_seconds)
