"""What dead workers and killed askers leave in a broker, removed. Everything may be done twice, or by two at once."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, Protocol

import amqp
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from sandloom.broker import rabbitmq
from sandloom.broker.queues import is_amqp, is_redis, worker_queue
from sandloom.settings.urls import redis_client_url

TIMEOUT_SECONDS: Final = 3.0
#: A reply that nobody fetched for so long has lost its asker.
REPLY_SECONDS: Final = 300
#: kombu keeps the messages of each priority in a list of its own.
_PRIORITIES: Final = ("", "\x06\x163", "\x06\x166", "\x06\x169")
_BINDINGS: Final = ("_kombu.binding.celery.pidbox", "_kombu.binding_permanent.celery.pidbox")
_SCAN_COUNT: Final = 1000


class Cleaner(Protocol):
    """Raises whatever the broker's client raises when the broker does not answer."""

    def remove_workers(self, worker_ids: Sequence[str]) -> int:
        """Remove the queues of workers that are dead, and their bindings; returns how many queues that were."""
        ...

    def expire_replies(self) -> int:
        """Give replies of remote control that nobody fetched an end; returns how many."""
        ...


class RedisCleaner:
    def __init__(self, url: str, namespace: str) -> None:
        self._url = redis_client_url(url)
        self._prefix = f"{namespace}:" if namespace else ""

    def remove_workers(self, worker_ids: Sequence[str]) -> int:
        names = "|".join(re.escape(worker_id) for worker_id in worker_ids)
        mailbox = re.compile(f"({names})@.*[.]celery[.]pidbox".encode())
        with self._client() as client:
            for key in (self._prefix + name for name in _BINDINGS):
                # A binding: routing key, pattern and queue, with a separator between them.
                dead = [
                    member for member in client.sscan_iter(key) if mailbox.fullmatch(member.rpartition(b"\x06\x16")[2])
                ]
                if dead:
                    client.srem(key, *dead)
            removed = 0
            for worker_id in worker_ids:
                keys = [f"{self._prefix}{worker_queue(worker_id)}{priority}" for priority in _PRIORITIES]
                removed += bool(client.delete(*keys))
            return removed

    def expire_replies(self) -> int:
        ended = 0
        pattern = re.sub(r"([*?\[\]\\^])", r"\\\1", self._prefix) + "*.reply.celery.pidbox"
        with self._client() as client:
            for key in client.scan_iter(pattern, count=_SCAN_COUNT, _type="list"):
                # A list that its asker empties is gone, and its end with it.
                ended += client.ttl(key) == -1 and bool(client.expire(key, REPLY_SECONDS))
        return ended

    def _client(self) -> Any:
        pool = redis.ConnectionPool.from_url(
            self._url,
            socket_timeout=TIMEOUT_SECONDS,
            socket_connect_timeout=TIMEOUT_SECONDS,
            retry=Retry(NoBackoff(), 0),
            protocol=2,
        )
        client: Any = redis.Redis.from_pool(pool)  # closes the pool at the end of a ``with``
        return client


class AmqpCleaner:
    """Mailboxes and replies of remote control end by themselves, soon after their last consumer: RabbitMQ knows it."""

    def __init__(self, url: str) -> None:
        self._url = url

    def remove_workers(self, worker_ids: Sequence[str]) -> int:
        with rabbitmq.connected(self._url) as connection:
            return sum(_delete(connection, worker_queue(worker_id)) for worker_id in worker_ids)

    def expire_replies(self) -> int:
        return 0


def _delete(connection: Any, queue: str) -> bool:
    """Whether it was there, and nobody consumed it: a worker that is back keeps its queue."""
    channel = connection.channel()
    try:
        channel.queue_declare(queue, passive=True)
        channel.queue_delete(queue, if_unused=True)
    except (amqp.NotFound, amqp.PreconditionFailed):
        return False  # the error has closed the channel
    channel.close()
    return True


class NothingToClean:
    """In one process everything ends with it."""

    def remove_workers(self, worker_ids: Sequence[str]) -> int:
        return 0

    def expire_replies(self) -> int:
        return 0


def open_cleaner(url: str, namespace: str) -> Cleaner:
    """For the broker at ``url``; nothing is contacted yet."""
    if is_redis(url):
        return RedisCleaner(url, namespace)
    return AmqpCleaner(url) if is_amqp(url) else NothingToClean()
