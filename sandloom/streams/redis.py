"""The bus of a fleet: Redis pub/sub."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from sandloom.contracts.ports import Head
from sandloom.ids import ExecKey
from sandloom.settings.urls import redis_client_url
from sandloom.streams.breaker import Breaker
from sandloom.streams.codec import (
    BusMessageInvalid,
    decode_head,
    decode_reply,
    encode_head,
    encode_reply,
    is_reply_channel,
)
from sandloom.streams.subscriber import Subscriber
from sandloom.streams.watchers import Counts, ExecWatch, Watchers

log = logging.getLogger(__name__)

#: Bounds one connect and one answer each; a publish takes at most both.
TIMEOUT_SECONDS: Final = 0.5
BREAKER_SECONDS: Final = 1.0
MAX_PUBLISH_CONNECTIONS: Final = 64


class RedisBus:
    """Publishes on the caller's thread; subscribes, once somebody watches or wants replies, on one thread of its own.

    Channels: ``<namespace>:heads`` and ``<namespace>:reply:<process>``. ``counts`` has ``dropped`` (malformed or
    unusable, received or asked to send) and ``unsent`` (Redis did not take it).
    """

    def __init__(self, url: str, namespace: str, *, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        self.counts = Counts()
        self._watchers = Watchers()
        self._breaker = Breaker(BREAKER_SECONDS)
        self._prefix = f"{namespace}:"
        self._heads_channel = f"{self._prefix}heads"
        self._heads = self._heads_channel.encode()
        self._reply_channel = f"reply:{uuid.uuid4().hex}"
        self._handler: Callable[[dict[str, Any]], None] | None = None
        self._pool = redis.BlockingConnectionPool.from_url(
            redis_client_url(url),
            max_connections=MAX_PUBLISH_CONNECTIONS,
            timeout=timeout_seconds,
            socket_timeout=timeout_seconds,
            socket_connect_timeout=timeout_seconds,
            socket_keepalive=True,
            retry=Retry(NoBackoff(), 0),
            # There a message is an answer like any other; nothing here needs RESP3.
            protocol=2,
        )
        self._start_lock = threading.Lock()
        self._subscriber: Subscriber | None = None
        self._closed = False

    def publish_head(self, key: ExecKey, seq: int, terminal: bool) -> None:
        self._publish(self._heads_channel, encode_head(key, seq, terminal))

    def refresh(self, read: Callable[[Sequence[ExecKey]], Iterable[tuple[ExecKey, Head]]]) -> None:
        self._watchers.refresh(read)

    def publish_reply(self, channel: str, body: Mapping[str, Any]) -> None:
        try:
            data = encode_reply(body)
        except BusMessageInvalid:
            self.counts.add("dropped")
            return
        if not is_reply_channel(channel):
            self.counts.add("dropped")
            return
        self._publish(self._prefix + channel, data)

    def watch(self, key: ExecKey) -> ExecWatch:
        """Does not wait for Redis: the first connection wakes every watch, as each later one does."""
        watch = self._watchers.watch(key)
        self._started()
        return watch

    def on_reply(self, handler: Callable[[dict[str, Any]], None]) -> str:
        """Waits a moment for the first connection, so that a call made at once can be answered."""
        if self._handler is not None:
            raise RuntimeError("this bus hands its replies to another handler already")
        self._handler = handler
        self._started().wait_connected(2 * TIMEOUT_SECONDS)
        return self._reply_channel

    @property
    def connected(self) -> bool:
        """Whether messages can arrive at the moment."""
        return not self._closed and self._subscriber is not None and self._subscriber.connected

    def close(self) -> None:
        """End the subscriber and the connections; every wait ends once."""
        with self._start_lock:
            self._closed = True
            subscriber = self._subscriber
        if subscriber is not None:
            subscriber.stop()
        self._watchers.wake_all()
        self._pool.disconnect()

    def _started(self) -> Subscriber:
        with self._start_lock:
            if self._subscriber is None:
                channels = (self._heads_channel, self._prefix + self._reply_channel)
                self._subscriber = Subscriber(self._pool, channels, self._receive, self._watchers.wake_all)
                if not self._closed:
                    self._subscriber.start()
            return self._subscriber

    def _receive(self, channel: bytes, data: bytes) -> None:
        try:
            if channel == self._heads:
                self._watchers.deliver(*decode_head(data))
            elif self._handler is not None:
                self._handler(decode_reply(data))
        except BusMessageInvalid:
            self.counts.add("dropped")

    def _publish(self, channel: str, data: bytes) -> None:
        if self._closed or not self._breaker.allow():
            self.counts.add("unsent")
            return
        try:
            self._send(channel, data)
        except Exception as error:
            # A publish never fails its caller: the rows are safe already.
            self.counts.add("unsent")
            if self._breaker.failure():
                log.warning("the bus does not take messages (%s)", type(error).__name__)
        else:
            self._breaker.success()

    def _send(self, channel: str, data: bytes) -> None:
        """Without redis-py's client, whose retries and records would cost more than the command."""
        pool: Any = self._pool
        connection = pool.get_connection()
        try:
            connection.send_command("PUBLISH", channel, data)
            connection.read_response()
        finally:
            pool.release(connection)
