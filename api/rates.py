"""How often a tenant may call, counted by the ``limits`` library: in Redis for all API processes together, in memory
for the one process of the embedded mode."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final, Protocol

from limits import RateLimitItem, parse_many
from limits.errors import StorageError
from limits.storage import MemoryStorage, RedisStorage, Storage
from limits.strategies import SlidingWindowCounterRateLimiter
from redis.backoff import NoBackoff
from redis.retry import Retry

from sandloom.errors import RateLimited
from sandloom.settings.urls import is_memory
from sandloom.streams.breaker import Breaker
from sandloom.telemetry import get_logger

_log = get_logger("api.rates")
#: Bounds a connect and an answer each: a call waits for them.
TIMEOUT_SECONDS: Final = 0.2
BREAKER_SECONDS: Final = 5.0


class Rates(Protocol):
    def count(self, tenant_id: str) -> None:
        """One more call. Raises RateLimited."""


class Unlimited:
    def count(self, tenant_id: str) -> None:
        """Nothing is counted."""


class CountedRates:
    """Thread-safe. While Redis does not answer each process counts for itself."""

    def __init__(self, items: Sequence[RateLimitItem], storage: Storage) -> None:
        self._items = items
        self._shared = SlidingWindowCounterRateLimiter(storage)
        self._alone = SlidingWindowCounterRateLimiter(MemoryStorage())
        self._breaker = Breaker(BREAKER_SECONDS)

    def count(self, tenant_id: str) -> None:
        for item in self._items:
            refused_until = self._hit(item, tenant_id)
            if refused_until is not None:
                wait_seconds = max(1, min(round(refused_until - time.time()), item.get_expiry()))
                raise RateLimited(retry_after_seconds=wait_seconds, limit=str(item))

    def _hit(self, item: RateLimitItem, tenant_id: str) -> float | None:
        """None, or the wall time at which there is room again."""
        if self._breaker.allow():
            try:
                found = _counted(self._shared, item, tenant_id)
            except StorageError as error:
                if self._breaker.failure():
                    _log.warning("rates are counted by process", error=type(error.storage_error).__name__)
            else:
                self._breaker.success()
                return found
        return _counted(self._alone, item, tenant_id)


def _counted(limiter: SlidingWindowCounterRateLimiter, item: RateLimitItem, tenant_id: str) -> float | None:
    if limiter.hit(item, "tenant", tenant_id):
        return None
    return float(limiter.get_window_stats(item, "tenant", tenant_id).reset_time)


def open_rates(limit: str, bus_url: str, namespace: str) -> Rates:
    """``limit`` as in the settings. Nothing is contacted before the first call."""
    if not limit:
        return Unlimited()
    if is_memory(bus_url):
        return CountedRates(parse_many(limit), MemoryStorage())
    options: dict[str, Any] = {
        "socket_timeout": TIMEOUT_SECONDS,
        "socket_connect_timeout": TIMEOUT_SECONDS,
        "retry": Retry(NoBackoff(), 0),
    }
    storage = RedisStorage(bus_url, key_prefix=f"{namespace}:rates", wrap_exceptions=True, **options)
    return CountedRates(parse_many(limit), storage)
