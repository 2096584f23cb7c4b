"""What can be known of broker, bus and result backend before work depends on them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from sandloom.broker import rabbitmq
from sandloom.broker.queues import is_amqp, is_redis
from sandloom.broker.refusals import why_refused
from sandloom.errors import BrokerRefused
from sandloom.settings import Settings
from sandloom.settings.urls import redis_client_url

TIMEOUT_SECONDS: Final = 3.0
#: The only policy under which Redis drops nothing by itself.
KEEPS_ALL: Final = "noeviction"


@dataclass(frozen=True, slots=True)
class ServerCheck:
    """``names``: the settings that lead to this server. ``eviction_policy``: of Redis, None where it does not tell."""

    names: tuple[str, ...]
    kind: str
    reachable: bool
    eviction_policy: str | None = None

    @property
    def warnings(self) -> list[str]:
        where = ", ".join(self.names)
        if not self.reachable:
            return [f"{where}: nobody answers there now; it is tried again until somebody does"]
        if self.kind != "redis" or self.eviction_policy == KEEPS_ALL:
            return []
        if self.eviction_policy is None:
            return [f"{where}: Redis does not tell its maxmemory-policy; it must be {KEEPS_ALL}"]
        drops = f"Redis drops messages and results when its memory is full (maxmemory-policy {self.eviction_policy})"
        return [f"{where}: {drops}; set it to {KEEPS_ALL}"]

    def to_dict(self) -> dict[str, Any]:
        return {
            "settings": list(self.names),
            "kind": self.kind,
            "reachable": self.reachable,
            "eviction_policy": self.eviction_policy,
        }


def check_servers(settings: Settings) -> list[ServerCheck]:
    """One connection to each. Raises BrokerRefused, which names the setting and never shows its value, where a server
    says no to what the URL says; a server that is down is no error, since it may come up later."""
    return [_check(url, names) for url, names in _servers(settings)]


def warnings_of(settings: Settings) -> list[str]:
    """What there is to say of the servers at the moment, refusals too."""
    try:
        return [warning for server in check_servers(settings) for warning in server.warnings]
    except BrokerRefused as error:
        return [error.detail]


def _servers(settings: Settings) -> Iterator[tuple[str, tuple[str, ...]]]:
    named: dict[str, list[str]] = {}
    for name in ("broker_url", "bus_url", "result_backend"):
        url = getattr(settings, name) or ""
        if is_redis(url) or is_amqp(url):
            named.setdefault(url, []).append(f"SANDBOX_{name.upper()}")
    for url, names in named.items():
        yield url, tuple(names)


def _check(url: str, names: tuple[str, ...]) -> ServerCheck:
    kind = "redis" if is_redis(url) else "rabbitmq"
    policy = None
    try:
        if kind == "redis":
            policy = _ask_redis(url)
        else:
            _ask_rabbitmq(url)
    except Exception as error:  # clients raise what they like
        reason = why_refused(error)
        if reason is not None:
            raise BrokerRefused(f"{', '.join(names)}: {reason}", reason=reason) from None
        return ServerCheck(names, kind, reachable=False)
    return ServerCheck(names, kind, reachable=True, eviction_policy=policy)


def _ask_redis(url: str) -> str | None:
    pool = redis.ConnectionPool.from_url(
        redis_client_url(url),
        socket_timeout=TIMEOUT_SECONDS,
        socket_connect_timeout=TIMEOUT_SECONDS,
        retry=Retry(NoBackoff(), 0),
        protocol=2,
    )
    client = redis.Redis(connection_pool=pool)
    try:
        client.ping()
        try:
            # Where CONFIG is switched off, as in hosted Redis, INFO still tells.
            return str(client.info("memory")["maxmemory_policy"])
        except (redis.ResponseError, KeyError):
            return None
    finally:
        pool.disconnect()


def _ask_rabbitmq(url: str) -> None:
    with rabbitmq.connected(url):
        pass
