"""The registry of a fleet: one key per worker in Redis, which runs out by itself."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from sandloom.streams.breaker import Breaker

log = logging.getLogger(__name__)

#: A hint that is not given again is forgotten after this.
KEPT_SECONDS: Final = 30
#: Bounds a connect and an answer each: a placement waits for them.
TIMEOUT_SECONDS: Final = 0.2
BREAKER_SECONDS: Final = 5.0


class RedisRegistry:
    """Thread-safe. While Redis does not answer, nobody's load is known and nobody waits for it."""

    def __init__(self, url: str, namespace: str) -> None:
        self._prefix = f"{namespace}:load:"
        self._breaker = Breaker(BREAKER_SECONDS)
        self._redis: Any = redis.Redis.from_url(
            url,
            socket_timeout=TIMEOUT_SECONDS,
            socket_connect_timeout=TIMEOUT_SECONDS,
            retry=Retry(NoBackoff(), 0),
        )

    def report(self, worker_id: str, load: float) -> None:
        self._asked("set", self._prefix + worker_id, f"{load:.3f}", ex=KEPT_SECONDS)

    def loads(self, worker_ids: Sequence[str]) -> Mapping[str, float]:
        if len(worker_ids) < 2:
            return {}  # there is nothing to decide
        values = self._asked("mget", [self._prefix + name for name in worker_ids]) or []
        loads = {}
        for name, value in zip(worker_ids, values, strict=False):
            with contextlib.suppress(TypeError, ValueError):
                loads[name] = float(value)
        return loads

    def close(self) -> None:
        self._redis.close()

    def _asked(self, command: str, *args: Any, **options: Any) -> Any:
        """None: Redis did not answer."""
        if not self._breaker.allow():
            return None
        try:
            answer = getattr(self._redis, command)(*args, **options)
        except (redis.RedisError, OSError) as error:
            if self._breaker.failure():
                log.warning("registry does not answer: %s", type(error).__name__)
            return None
        self._breaker.success()
        return answer
