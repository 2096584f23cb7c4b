"""The one connection of a process on which bus messages arrive."""

from __future__ import annotations

import contextlib
import logging
import random
import socket
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final

import redis

from sandloom.clock import monotonic_seconds

log = logging.getLogger(__name__)

#: A silent connection is asked for a sign of life after this long, and given up after ``DEAD_SECONDS``: a peer that
#: vanished without closing would otherwise leave every reader to its slow polling for ever.
IDLE_SECONDS: Final = 5.0
DEAD_SECONDS: Final = 15.0
_FIRST_BACKOFF_SECONDS: Final = 0.05
_MAX_BACKOFF_SECONDS: Final = 1.0


class Subscriber:
    """A thread that keeps ``channels`` subscribed. ``on_message(channel, data)`` runs on it and must be quick;
    ``on_connect()`` runs after each (re)connection, because messages may have been lost before."""

    def __init__(
        self,
        pool: redis.ConnectionPool,
        channels: Sequence[str],
        on_message: Callable[[bytes, bytes], None],
        on_connect: Callable[[], None],
    ) -> None:
        self._pool = pool
        self._channels = tuple(channel.encode() for channel in channels)
        self._on_message = on_message
        self._on_connect = on_connect
        self._connected = threading.Event()
        self._stopping = threading.Event()
        self._socket: socket.socket | None = None
        self._thread = threading.Thread(target=self._run, name="bus-subscriber", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def connected(self) -> bool:
        return self._connected.is_set()

    def wait_connected(self, timeout_seconds: float) -> bool:
        return self._connected.wait(timeout_seconds)

    def stop(self) -> None:
        """End the thread; a read in progress is interrupted."""
        self._stopping.set()
        sock = self._socket
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout=5.0)

    def _run(self) -> None:
        backoff_seconds = _FIRST_BACKOFF_SECONDS
        while not self._stopping.is_set():
            # Not one of the pool's, which are lent for a command each; nor redis-py's PubSub, which wraps every read in
            # a look for more, a check of health and a retry.
            connection: Any = self._pool.connection_class(**self._pool.connection_kwargs)
            try:
                self._subscribe(connection)
                backoff_seconds = _FIRST_BACKOFF_SECONDS
                self._receive(connection)
            except (redis.RedisError, OSError) as error:
                if self._connected.is_set() and not self._stopping.is_set():
                    log.warning("the bus connection was lost (%s); connecting again", type(error).__name__)
            finally:
                self._connected.clear()
                self._socket = None
                with contextlib.suppress(redis.RedisError, OSError):
                    connection.disconnect()
            self._stopping.wait(backoff_seconds * random.uniform(0.5, 1.0))
            backoff_seconds = min(2 * backoff_seconds, _MAX_BACKOFF_SECONDS)

    def _subscribe(self, connection: Any) -> None:
        connection.connect()
        self._socket = getattr(connection, "_sock", None)
        connection.send_command("SUBSCRIBE", *self._channels)
        missing = set(self._channels)
        while missing:
            if self._stopping.is_set():
                raise redis.ConnectionError("the subscription was not confirmed")
            kind, channel, *_ = connection.read_response()
            if kind == b"subscribe":
                missing.discard(channel)
        self._connected.set()
        self._on_connect()

    def _receive(self, connection: Any) -> None:
        heard_seconds = monotonic_seconds()
        while not self._stopping.is_set():
            try:
                kind, channel, *data = connection.read_response(timeout=IDLE_SECONDS, disconnect_on_error=False)
            except redis.TimeoutError:
                if monotonic_seconds() - heard_seconds > DEAD_SECONDS:
                    raise
                connection.send_command("PING")
                continue
            heard_seconds = monotonic_seconds()
            if kind == b"message":
                self._handle(channel, data[0])

    def _handle(self, channel: bytes, data: bytes) -> None:
        try:
            self._on_message(channel, data)
        except Exception:
            # Whatever one message did, the thread serves all readers of this process.
            log.exception("a bus message could not be handled")
