"""Names of queues, and how a broker is reached."""

from __future__ import annotations

import ssl
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

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
#: On RabbitMQ a queue is full with so many messages, and its senders are told; rows wait in the database in any case.
#: A queue keeps the arguments that it was made with, so other values need it to be deleted first.
MAX_QUEUE_MESSAGES: Final = 20_000
#: RabbitMQ itself removes what nobody consumed for a week: long after maintenance should have.
UNUSED_SECONDS: Final = 604_800

_CERTIFICATE_CHECKS: Final = {
    "required": ssl.CERT_REQUIRED, "optional": ssl.CERT_OPTIONAL, "none": ssl.CERT_NONE,
}  # fmt: skip
#: How a URL calls what py-amqp calls by the same name without ``ssl_``.
_AMQP_TLS_FILES: Final = ("ca_certs", "certfile", "keyfile")


def worker_queue(worker_id: str) -> str:
    """The durable queue that only this worker consumes."""
    return _WORKER_PREFIX + worker_id


def queue(name: str, *, expires_seconds: float | None = None, declared: bool = True) -> Queue:
    """A durable queue, reached through the default exchange under its own name: nothing to bind, nothing to lose.

    ``declared``: whether sending to it makes it where it is not there.
    """
    return Queue(
        name,
        exchange=Exchange(""),
        routing_key=name,
        durable=True,
        no_declare=None if declared else True,
        expires=expires_seconds,
        # Refused rather than lost: the sender of the newest still waits for an answer.
        max_length=MAX_QUEUE_MESSAGES,
        queue_arguments={"x-overflow": "reject-publish"},
    )


def owner_queue(name: str) -> Queue:
    """A worker's queue for those who send to it: only its worker makes it, so that none stays behind for a dead one."""
    return queue(name, declared=False)


def worker_queues(worker_id: str, url: str = "memory://") -> list[Queue]:
    """What a worker consumes from the broker at ``url``: its own queue, requests without a known owner, and
    maintenance."""
    # On Redis an empty list is no key; kombu would only renew the lifetime of what is not there, with every message.
    expires_seconds = UNUSED_SECONDS if is_amqp(url) else None
    own = queue(worker_queue(worker_id), expires_seconds=expires_seconds)
    return [own, queue(DISPATCH_QUEUE), queue(MAINTENANCE_QUEUE)]


def broker_url(url: str) -> str:
    """The URL for kombu and Celery. ``SettingsInvalid`` for a broker that is none of ours; it never shows the URL."""
    scheme, separator, rest = url.partition("://")
    if not separator or scheme not in ("memory", MEMORY_SCHEME, "redis", "rediss", "amqp", "amqps", "pyamqp"):
        raise SettingsInvalid("SANDBOX_BROKER_URL: the broker is redis://, amqp:// or memory://")
    if scheme == "amqps":
        return _without_tls_words(url)
    # Without a host kombu warns about each connection.
    return f"{MEMORY_SCHEME}://{rest or 'localhost/'}" if scheme in ("memory", MEMORY_SCHEME) else url


def is_memory(url: str) -> bool:
    """Whether the broker lives inside this process only."""
    return broker_url(url).startswith(f"{MEMORY_SCHEME}://")


def is_redis(url: str) -> bool:
    return url.startswith(("redis://", "rediss://"))


def is_amqp(url: str) -> bool:
    return url.startswith(("amqp://", "amqps://", "pyamqp://"))


def tls_options(url: str) -> dict[str, Any] | bool:
    """For ``ssl`` of a connection and Celery's ``broker_use_ssl``: certificates are checked unless the URL's own
    ``ssl_…`` parameters say otherwise: ``ssl_ca_certs, ssl_certfile, ssl_keyfile, ssl_cert_reqs``. Raises
    SettingsInvalid for a value of the last one that is none."""
    if url.startswith("rediss://"):
        return {"ssl_cert_reqs": ssl.CERT_REQUIRED}
    if not url.startswith("amqps://"):
        return False
    parts = urlsplit(url)
    words = dict(parse_qsl(parts.query))
    wanted = words.get("ssl_cert_reqs", "required").lower().removeprefix("cert_")
    if wanted not in _CERTIFICATE_CHECKS:
        raise SettingsInvalid("SANDBOX_BROKER_URL: ssl_cert_reqs is required, optional or none")
    options: dict[str, Any] = {"cert_reqs": _CERTIFICATE_CHECKS[wanted]}
    if wanted == "required" and words.get("ssl_check_hostname", "").lower() != "false":
        options["server_hostname"] = parts.hostname
    return options | {name: words[f"ssl_{name}"] for name in _AMQP_TLS_FILES if f"ssl_{name}" in words}


def _without_tls_words(url: str) -> str:
    """kombu hands them to py-amqp under names that it does not know."""
    parts = urlsplit(url)
    kept = [(name, value) for name, value in parse_qsl(parts.query) if not name.startswith("ssl_")]
    return urlunsplit(parts._replace(query=urlencode(kept)))


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
    if is_memory(url):
        return {}
    # Also of a consumer's process, which passes messages on: a message counts as sent once RabbitMQ has it.
    confirm = {"confirm_publish": True}
    if consume:
        return confirm
    return confirm | {
        "connect_timeout": timeout_seconds,
        "read_timeout": timeout_seconds,
        "write_timeout": timeout_seconds,
    }
