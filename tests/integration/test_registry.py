"""Hints of load: kept for a while, and missed by nobody when they are gone."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
import redis

from sandloom.contracts.ports import Registry
from sandloom.errors import SettingsInvalid
from sandloom.registry import MemoryRegistry, open_registry
from sandloom.registry.redis import RedisRegistry
from sandloom.settings import Settings
from tests.services.redis import RedisServer


@pytest.fixture(params=["memory", pytest.param("redis", marks=pytest.mark.server)])
def registry(request: pytest.FixtureRequest) -> Iterator[Registry]:
    if request.param == "memory":
        yield MemoryRegistry()
        return
    url = request.getfixturevalue("redis_url")
    settings = Settings.load({"SANDBOX_REGISTRY_BACKEND": "redis", "SANDBOX_REDIS_URL": url})
    with contextlib.closing(open_registry(settings)) as opened:
        yield opened


def test_what_was_reported_last_is_known(registry: Registry) -> None:
    for load in (0.25, 1.5):
        registry.report("w1", load)
    registry.report("w2", 0.0)
    assert registry.loads(["w1", "w2", "w3"]) == {"w1": 1.5, "w2": 0.0}
    assert registry.loads([]) == {}


def test_hints_run_out_and_nonsense_is_no_hint(redis_url: str) -> None:
    registry = RedisRegistry(redis_url, "test")
    registry.report("w1", 0.5)
    with redis.Redis.from_url(redis_url) as server:
        assert 0 < server.ttl("test:load:w1") <= 30
        server.set("test:load:w2", b"much\xff")
    assert registry.loads(["w1", "w2"]) == {"w1": 0.5}
    registry.close()


def test_without_a_server_nothing_is_known_and_nobody_fails(private_redis: RedisServer) -> None:
    registry = RedisRegistry(private_redis.new_url(), "test")
    registry.report("w1", 0.5)
    private_redis.stop()
    registry.report("w1", 0.7)
    assert registry.loads(["w1", "w2"]) == {}
    registry.close()


def test_a_registry_that_nobody_brings_stops_the_start() -> None:
    settings = Settings.load({"SANDBOX_REGISTRY_BACKEND": "theirs"})
    with pytest.raises(SettingsInvalid, match=r"SANDBOX_REGISTRY_BACKEND: 0 entry points of agent_sandbox\.registries"):
        open_registry(settings)
