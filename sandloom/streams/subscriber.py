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
from redis.client import PubSub

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
        on_message: Callable[[str, bytes], None],
        on_connect: Callable[[], None],
    ) -> None:
        self._pool = pool
        self._channels = tuple(channels)
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
            pubsub = PubSub(self._pool)
            try:
                self._subscribe(pubsub)
                backoff_seconds = _FIRST_BACKOFF_SECONDS
                self._receive(pubsub)
            except (redis.RedisError, OSError) as error:
                if self._connected.is_set() and not self._stopping.is_set():
                    log.warning("the bus connection was lost (%s); connecting again", type(error).__name__)
            finally:
                self._connected.clear()
                self._socket = None
                with contextlib.suppress(redis.RedisError, OSError):
                    pubsub.close()
            self._stopping.wait(backoff_seconds * random.uniform(0.5, 1.0))
            backoff_seconds = min(2 * backoff_seconds, _MAX_BACKOFF_SECONDS)

    def _subscribe(self, pubsub: PubSub) -> None:
        pubsub.subscribe(*self._channels)
        self._socket = getattr(pubsub.connection, "_sock", None)
        missing = set(self._channels)
        deadline_seconds = monotonic_seconds() + DEAD_SECONDS
        while missing:
            if self._stopping.is_set() or monotonic_seconds() > deadline_seconds:
                raise redis.ConnectionError("the subscription was not confirmed")
            message = pubsub.get_message(timeout=1.0)
            if message is not None and message["type"] == "subscribe":
                missing.discard(_text(message["channel"]))
        self._connected.set()
        self._on_connect()

    def _receive(self, pubsub: PubSub) -> None:
        heard_seconds = monotonic_seconds()
        while not self._stopping.is_set():
            message = pubsub.get_message(timeout=IDLE_SECONDS)
            now = monotonic_seconds()
            if message is not None:
                heard_seconds = now
                self._handle(message)
            elif now - heard_seconds > DEAD_SECONDS:
                raise redis.ConnectionError("the connection is silent")
            else:
                pubsub.ping()

    def _handle(self, message: dict[str, Any]) -> None:
        if message["type"] != "message":
            return
        try:
            self._on_message(_text(message["channel"]), message["data"])
        except Exception:
            # Whatever one message did, the thread serves all readers of this process.
            log.exception("a bus message could not be handled")


def _text(value: bytes | str) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
