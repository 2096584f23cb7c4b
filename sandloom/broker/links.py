"""Connections for publishing: few, reused, replaced when they break, and never retried behind the caller's back."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Final, Protocol

from kombu import Connection

from sandloom.broker.kombu_link import AmqpLink, KombuLink
from sandloom.broker.message import MessageRefused, TaskMessage
from sandloom.broker.queues import broker_url, is_amqp, is_redis, tls_options, transport_options
from sandloom.broker.redis_link import RedisLink

#: All links may be in use for this long before a caller gives up.
TURN_SECONDS: Final = 1.0


class LinksBusy(Exception):
    """Every connection was in use for longer than a caller waits."""


class Link(Protocol):
    """One connection. Belongs to one thread at a time; ``used`` once it has sent a message."""

    used: bool

    def publish(self, queue: str, message: TaskMessage) -> None:
        """Raises MessageRefused, or whatever the transport raises."""

    def close(self) -> None: ...


class Links:
    """At most ``limit`` links, made when needed."""

    def __init__(self, url: str, namespace: str, limit: int, timeout_seconds: float) -> None:
        self._url = broker_url(url)
        self._tls = tls_options(url)
        self._namespace = namespace
        self._timeout_seconds = timeout_seconds
        self._options = transport_options(url, namespace, consume=False, timeout_seconds=timeout_seconds)
        self._turns = threading.BoundedSemaphore(limit)
        self._lock = threading.Lock()
        self._idle: list[Link] = []
        self._closed = False

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """The right to use a link, for the ``with`` block; ``LinksBusy`` when no turn comes in time."""
        if not self._turns.acquire(timeout=TURN_SECONDS):
            raise LinksBusy
        try:
            yield
        finally:
            self._turns.release()

    @contextlib.contextmanager
    def borrow(self, *, fresh: bool = False) -> Iterator[Link]:
        """A link for the ``with`` block, within a turn. One that raises there is thrown away, and all idle ones with
        it, since they share its fate; but one whose broker refused a message is as good as before. ``fresh``: not one
        that was used before.

        Raises whatever the transport raises when it cannot connect.
        """
        link = (None if fresh else self._take()) or self._connect()
        try:
            yield link
        except MessageRefused:
            self._give_back(link)
            raise
        except BaseException:
            link.close()
            self._drop_idle()
            raise
        self._give_back(link)

    def close(self) -> None:
        self._closed = True
        self._drop_idle()

    def _connect(self) -> Link:
        if is_redis(self._url):
            return RedisLink(self._url, self._namespace, self._timeout_seconds)
        connection = Connection(
            self._url, ssl=self._tls, connect_timeout=self._timeout_seconds, transport_options=self._options
        )
        make = AmqpLink if is_amqp(self._url) else KombuLink
        return make(connection, self._timeout_seconds)

    def _take(self) -> Link | None:
        with self._lock:
            return self._idle.pop() if self._idle else None

    def _give_back(self, link: Link) -> None:
        link.used = True
        with self._lock:
            if not self._closed:
                self._idle.append(link)
                return
        link.close()

    def _drop_idle(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for link in idle:
            link.close()
