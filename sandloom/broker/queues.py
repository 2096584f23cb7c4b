"""Names of queues, and how a broker is reached."""

from __future__ import annotations

import ssl
from typing import Any, Final

from kombu import Exchange, Queue
from kombu.transport import TRANSPORT_ALIASES

from sandloom.errors import SettingsInvalid

DISPATCH_QUEUE: Final = "sandloom.dispatch"
MAINTENANCE_QUEUE: Final = "sandloom.maintenance"
_WORKER_PREFIX: Final = "sandloom.worker."

#: The in-process transport; ``broker_url`` maps ``memory://`` to it, whose own kombu transport polls.
MEMORY_SCHEME: Final = "sandloom-memory"

TRANSPORT_ALIASES.setdefault(MEMORY_SCHEME, "sandloom.broker.memory:Transport")

#: A connection for publishing answers within this or counts as down.
PUBLISH_TIMEOUT_SECONDS: Final = 0.5
#: A consumer's socket may be silent for as long as kombu's blocking pop (10 s) and no longer than this.
CONSUME_TIMEOUT_SECONDS: Final = 30.0
CONSUME_CONNECT_SECONDS: Final = 5.0
#: Messages are acknowledged as soon as the row exists, so nothing legitimate stays unacknowledged for an hour.
VISIBILITY_TIMEOUT_SECONDS: Final = 3_600


def worker_queue(worker_id: str) -> str:
    """The durable queue that only this worker consumes."""
    return _WORKER_PREFIX + worker_id


def queue(name: str) -> Queue:
    """A durable queue, reached through the default exchange under its own name: nothing to bind, nothing to lose."""
    return Queue(name, exchange=Exchange(""), routing_key=name, durable=True)


def worker_queues(worker_id: str) -> list[Queue]:
    """What a worker consumes: its own queue, requests without a known owner, and maintenance."""
    return [queue(worker_queue(worker_id)), queue(DISPATCH_QUEUE), queue(MAINTENANCE_QUEUE)]


def broker_url(url: str) -> str:
    """The URL for kombu and Celery. ``SettingsInvalid`` for a broker that is none of ours; it never shows the URL."""
    scheme, separator, rest = url.partition("://")
    if not separator or scheme not in ("memory", MEMORY_SCHEME, "redis", "rediss", "amqp", "amqps", "pyamqp"):
        raise SettingsInvalid("SANDBOX_BROKER_URL: the broker is redis://, amqp:// or memory://")
    # Without a host kombu warns about each connection.
    return f"{MEMORY_SCHEME}://{rest or 'localhost/'}" if scheme in ("memory", MEMORY_SCHEME) else url


def is_memory(url: str) -> bool:
    """Whether the broker lives inside this process only."""
    return broker_url(url).startswith(f"{MEMORY_SCHEME}://")


def is_redis(url: str) -> bool:
    return url.startswith(("redis://", "rediss://"))


def tls_options(url: str) -> dict[str, Any] | bool:
    """For ``ssl`` of a connection and Celery's ``broker_use_ssl``: certificates are checked unless the URL's own
    ``ssl_…`` parameters, which come first, say otherwise."""
    return {"ssl_cert_reqs": ssl.CERT_REQUIRED} if url.startswith("rediss://") else False


def transport_options(
    url: str, namespace: str, *, consume: bool, timeout_seconds: float = PUBLISH_TIMEOUT_SECONDS
) -> dict[str, Any]:
    """kombu's transport options for ``url``. On Redis, ``namespace`` prefixes every key and channel, so deployments
    can share a server; on RabbitMQ the virtual host does that. ``timeout_seconds`` bounds a connect and an answer of
    a connection that only publishes."""
    if is_redis(url):
        return {
            "global_keyprefix": f"{namespace}:" if namespace else "",
            "socket_connect_timeout": CONSUME_CONNECT_SECONDS if consume else timeout_seconds,
            "socket_timeout": CONSUME_TIMEOUT_SECONDS if consume else timeout_seconds,
            "socket_keepalive": True,
            "retry_on_timeout": False,
            "visibility_timeout": VISIBILITY_TIMEOUT_SECONDS,
        }
    if is_memory(url) or consume:
        return {}
    return {
        "confirm_publish": True,
        "connect_timeout": timeout_seconds,
        "read_timeout": timeout_seconds,
        "write_timeout": timeout_seconds,
    }
