"""The bus over a Redis that says nonsense, restarts, stops answering or is not there."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from sandloom.contracts.ports import Head
from sandloom.errors import SettingsInvalid
from sandloom.ids import ExecKey
from sandloom.streams import RedisBus, open_bus
from tests.acceptance.worker_fleet import until
from tests.services.account import free_port
from tests.services.redis import RedisServer

KEY = ExecKey("default", "sandbox-1", "exec-1")
LONG_SECONDS = 30.0


@pytest.fixture
def bus(private_redis: RedisServer) -> Iterator[RedisBus]:
    opened = RedisBus(private_redis.url(), "test", timeout_seconds=LONG_SECONDS)
    assert opened._started().wait_connected(LONG_SECONDS)
    yield opened
    opened.close()


@pytest.mark.parametrize(
    "data", [b"", b"\xff", b"[]", b"[" * 100_000, b'{"key":1,"seq":1,"terminal":true}', b"x" * 9999]
)
def test_malformed_messages_are_dropped_and_counted(private_redis: RedisServer, bus: RedisBus, data: bytes) -> None:
    with bus.watch(KEY) as watch, private_redis.client() as attacker:
        attacker.publish("test:heads", data)
        bus.publish_head(KEY, 1, True)
        assert watch.wait(LONG_SECONDS) == Head(1, True)
    assert bus.counts["dropped"] == 1


def test_namespaces_do_not_hear_each_other(private_redis: RedisServer, bus: RedisBus) -> None:
    other = RedisBus(private_redis.url(), "other")
    with bus.watch(KEY) as watch:
        other.publish_head(KEY, 1, True)
        bus.publish_head(KEY, 2, False)
        assert watch.wait(LONG_SECONDS) == Head(2, False)
    other.close()


def test_a_process_that_only_publishes_subscribes_to_nothing(private_redis: RedisServer) -> None:
    publisher = RedisBus(private_redis.url(), "test", timeout_seconds=LONG_SECONDS)
    publisher.publish_head(KEY, 1, True)
    with private_redis.client() as client:
        assert client.pubsub_numsub("test:heads") == [(b"test:heads", 0)]
    assert publisher.counts["unsent"] == 0
    assert not publisher.connected
    publisher.close()


def test_after_a_restart_of_redis_every_watch_is_woken_and_hears_again(
    private_redis: RedisServer, bus: RedisBus
) -> None:
    with ThreadPoolExecutor(8) as pool:
        watches = [bus.watch(KEY) for _ in range(8)]
        waits = [pool.submit(watch.wait, LONG_SECONDS) for watch in watches]
        private_redis.restart()
        # None: look into the database, since messages may have been lost.
        assert [wait.result(LONG_SECONDS) for wait in waits] == [None] * 8
    assert bus.connected
    assert _publish_until_heard(bus)


def test_a_killed_connection_is_replaced_and_watches_are_woken(private_redis: RedisServer, bus: RedisBus) -> None:
    with bus.watch(KEY) as watch, private_redis.client() as admin:
        admin.client_kill_filter(_type="pubsub")
        assert watch.wait(LONG_SECONDS) is None
    assert _publish_until_heard(bus)


def test_a_bus_opened_before_redis_is_there_connects_later(private_redis: RedisServer) -> None:
    private_redis.stop()
    bus = RedisBus(private_redis.url(), "test")
    with bus.watch(KEY) as watch:
        before = bus.connected
        private_redis.start()
        assert watch.wait(LONG_SECONDS) is None
        assert (before, bus.connected) == (False, True)
    bus.close()


def test_without_redis_publishing_neither_raises_nor_takes_long() -> None:
    bus = RedisBus(f"redis://:hunter2@127.0.0.1:{free_port()}/0", "test")
    started = time.monotonic()
    for _ in range(1000):
        bus.publish_head(KEY, 1, True)
        bus.publish_reply("reply:" + "0" * 32, {})
    # Each of them would wait for its own, if nobody remembered.
    assert time.monotonic() - started < 60
    assert bus.counts["unsent"] == 2000
    bus.close()


def test_with_a_redis_that_is_stopped_no_publisher_waits_two_seconds(private_redis: RedisServer) -> None:
    waits = [longest_wait(private_redis)]
    # It may have been this machine that stood still.
    while min(waits) >= 2 and len(waits) < 5:
        waits.append(longest_wait(private_redis))
    assert min(waits) < 2, waits


def longest_wait(private_redis: RedisServer) -> float:
    """Seconds, of publishers whose Redis has just stopped to answer."""
    bus = RedisBus(private_redis.url(), "test")

    def publish(_: int) -> float:
        started = time.monotonic()
        bus.publish_head(KEY, 1, True)
        return time.monotonic() - started

    assert _publish_until_heard(bus)
    before = bus.counts["unsent"]
    os.kill(private_redis.pid, signal.SIGSTOP)
    try:
        with ThreadPoolExecutor(32) as pool:
            waited = [*pool.map(publish, range(64)), *pool.map(publish, range(64))]
    finally:
        os.kill(private_redis.pid, signal.SIGCONT)
    assert bus.counts["unsent"] - before > 64
    assert _publish_until_heard(bus)
    bus.close()
    return max(waited)


def test_a_failure_of_redis_is_logged_once_and_without_the_password(caplog: pytest.LogCaptureFixture) -> None:
    bus = RedisBus(f"redis://:hunter2@127.0.0.1:{free_port()}/0", "test")
    for _ in range(10):
        bus.publish_head(KEY, 1, True)
    bus.close()
    assert len(caplog.records) == 1
    assert "hunter2" not in caplog.text + repr(bus)


def test_closing_interrupts_a_subscriber_that_waits(
    private_redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sandloom.streams.subscriber.IDLE_SECONDS", 600.0)
    bus = RedisBus(private_redis.url(), "test")
    assert bus._started().wait_connected(LONG_SECONDS)
    bus.close()
    until(lambda: all(thread.name != "bus-subscriber" for thread in threading.enumerate()))


def test_another_scheme_is_a_setting_error_that_does_not_show_the_url() -> None:
    with pytest.raises(SettingsInvalid) as caught:
        open_bus("amqp://u:hunter2@h", "test")
    assert "hunter2" not in str(caught.value)


def _publish_until_heard(bus: RedisBus) -> bool:
    """Whether a head gets through; those sent while the breaker is open are lost, as heads may be."""
    deadline = time.monotonic() + LONG_SECONDS
    with bus.watch(ExecKey("default", "sandbox-1", "probe")) as watch:
        seq = 0
        while time.monotonic() < deadline:
            seq += 1
            bus.publish_head(watch.key, seq, False)
            if watch.wait(0.2) is not None:
                return True
    return False
