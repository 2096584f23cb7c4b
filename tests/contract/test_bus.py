"""The same promises over every bus."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import Empty, Queue
from typing import Any

import pytest

from sandloom.contracts.ports import Head
from sandloom.ids import ExecKey
from sandloom.streams import MemoryBus, RedisBus, open_bus

KEY = ExecKey("default", "sandbox-1", "exec-1")
OTHER = ExecKey("default", "sandbox-1", "exec-2")
LONG_SECONDS = 20.0


@pytest.fixture(params=["memory", pytest.param("redis", marks=pytest.mark.server)])
def bus(request: pytest.FixtureRequest) -> Iterator[MemoryBus | RedisBus]:
    """A bus that is connected, as a process that waits for something has it."""
    url = "memory://" if request.param == "memory" else request.getfixturevalue("redis_url")
    opened = open_bus(url, f"test-{uuid.uuid4().hex}")
    if isinstance(opened, RedisBus):
        assert opened._started().wait_connected(LONG_SECONDS)
    yield opened
    opened.close()


def test_a_head_reaches_a_watch_of_its_exec(bus: MemoryBus | RedisBus) -> None:
    with bus.watch(KEY) as watch:
        bus.publish_head(KEY, 3, False)
        assert watch.wait(LONG_SECONDS) == Head(3, False)


def test_a_head_of_another_exec_or_tenant_does_not(bus: MemoryBus | RedisBus) -> None:
    with bus.watch(KEY) as watch, bus.watch(OTHER) as other:
        bus.publish_head(KEY._replace(tenant_id="acme"), 1, True)
        bus.publish_head(OTHER, 2, True)
        assert other.wait(LONG_SECONDS) == Head(2, True)
        assert watch.wait(0) is None


def test_every_watch_of_an_exec_is_reached(bus: MemoryBus | RedisBus) -> None:
    watches = [bus.watch(KEY) for _ in range(20)]
    bus.publish_head(KEY, 1, True)
    assert [watch.wait(LONG_SECONDS) for watch in watches] == [Head(1, True)] * 20


def test_several_heads_become_the_newest_and_a_terminal_one_is_never_lost(bus: MemoryBus | RedisBus) -> None:
    with bus.watch(KEY) as watch, bus.watch(OTHER) as last:
        for seq, terminal in ((4, False), (5, True), (3, False)):
            bus.publish_head(KEY, seq, terminal)
        bus.publish_head(OTHER, 1, False)
        assert last.wait(LONG_SECONDS) is not None
        assert watch.wait(LONG_SECONDS) == Head(5, True)
        assert watch.wait(0) is None


def test_a_watch_hears_what_came_before_its_first_wait(bus: MemoryBus | RedisBus) -> None:
    with bus.watch(KEY) as watch, bus.watch(KEY) as witness:
        bus.publish_head(KEY, 1, False)
        assert witness.wait(LONG_SECONDS) is not None
        assert watch.wait(0) == Head(1, False)


def test_a_closed_watch_hears_nothing(bus: MemoryBus | RedisBus) -> None:
    with bus.watch(KEY) as watch:
        pass
    with bus.watch(KEY) as witness:
        bus.publish_head(KEY, 1, False)
        assert witness.wait(LONG_SECONDS) is not None
    assert watch.wait(0) is None
    assert len(bus._watchers) == 0


def test_without_news_a_wait_ends_with_its_time(bus: MemoryBus | RedisBus) -> None:
    with bus.watch(KEY) as watch:
        assert watch.wait(0.01) is None


def test_wake_ends_a_wait_and_only_one(bus: MemoryBus | RedisBus) -> None:
    with bus.watch(KEY) as watch, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(watch.wait, LONG_SECONDS)
        watch.wake()
        assert waiting.result(LONG_SECONDS) is None
        watch.wake()
        started = time.monotonic()
        assert watch.wait(LONG_SECONDS) is None
        assert time.monotonic() - started < LONG_SECONDS / 2
        bus.publish_head(KEY, 1, False)
        assert watch.wait(LONG_SECONDS) == Head(1, False)


def test_closing_the_bus_ends_every_wait() -> None:
    bus = MemoryBus()
    with ThreadPoolExecutor(4) as pool:
        watches = [bus.watch(KEY) for _ in range(4)]
        waits = [pool.submit(watch.wait, LONG_SECONDS) for watch in watches]
        bus.close()
        assert [wait.result(LONG_SECONDS) for wait in waits] == [None] * 4
    assert not bus.connected


def test_a_thousand_watches_cost_one_look_up_per_head(bus: MemoryBus | RedisBus) -> None:
    keys = [KEY._replace(exec_id=f"exec-{number}") for number in range(1000)]
    watches = [bus.watch(key) for key in keys]
    for seq, key in enumerate(keys, start=1):
        bus.publish_head(key, seq, True)
    assert [watch.wait(LONG_SECONDS) for watch in watches] == [Head(seq, True) for seq in range(1, 1001)]
    for watch in watches:
        watch.close()
    assert bus._watchers._by_key == {}


def test_many_publishers_and_watchers_at_once(bus: MemoryBus | RedisBus) -> None:
    def follow(number: int) -> int:
        key = KEY._replace(exec_id=f"exec-{number}")
        with bus.watch(key) as watch:
            for seq in range(1, 51):
                bus.publish_head(key, seq, seq == 50)
            newest = 0
            while newest < 50:
                head = watch.wait(LONG_SECONDS)
                assert head is not None
                newest = head.seq
            return newest

    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(follow, range(16))) == [50] * 16


def test_a_reply_reaches_the_handler(bus: MemoryBus | RedisBus) -> None:
    replies: Queue[dict[str, Any]] = Queue()
    channel = bus.on_reply(replies.put)
    assert bus.connected
    bus.publish_reply(channel, {"op_id": "1", "text": "ä\ud800\x00"})
    assert replies.get(timeout=LONG_SECONDS) == {"op_id": "1", "text": "ä\ud800\x00"}


def test_a_reply_for_another_process_does_not(bus: MemoryBus | RedisBus) -> None:
    replies: Queue[dict[str, Any]] = Queue()
    channel = bus.on_reply(replies.put)
    bus.publish_reply("reply:" + "0" * 32, {"n": 1})
    bus.publish_reply(channel, {"n": 2})
    assert replies.get(timeout=LONG_SECONDS) == {"n": 2}
    with pytest.raises(Empty):
        replies.get_nowait()


@pytest.mark.parametrize("channel", ["heads", "", "reply:x", "__keyspace@0__:x"])
def test_a_reply_to_what_is_no_reply_channel_is_dropped(bus: MemoryBus | RedisBus, channel: str) -> None:
    bus.publish_reply(channel, {"n": 1})
    assert bus.counts["dropped"] == 1


@pytest.mark.parametrize("body", [{"a": b"bytes"}, {"a": float("nan")}, {"a": "x" * 2_000_000}])
def test_a_reply_that_cannot_travel_is_dropped_without_an_exception(
    bus: MemoryBus | RedisBus, body: dict[str, Any]
) -> None:
    channel = bus.on_reply(lambda _: None)
    bus.publish_reply(channel, body)
    assert bus.counts["dropped"] == 1


def test_a_handler_that_fails_does_not_stop_the_next_message(bus: MemoryBus | RedisBus) -> None:
    heard: Queue[int] = Queue()

    def handler(body: dict[str, Any]) -> None:
        heard.put(body["n"])
        if body["n"] == 1:
            raise RuntimeError("a bug")

    channel = bus.on_reply(handler)
    bus.publish_reply(channel, {"n": 1})
    bus.publish_reply(channel, {"n": 2})
    assert [heard.get(timeout=LONG_SECONDS), heard.get(timeout=LONG_SECONDS)] == [1, 2]


def test_there_is_one_handler(bus: MemoryBus | RedisBus) -> None:
    bus.on_reply(lambda _: None)
    with pytest.raises(RuntimeError):
        bus.on_reply(lambda _: None)


def test_a_closed_bus_publishes_nothing_and_raises_nothing(bus: MemoryBus | RedisBus) -> None:
    channel = bus.on_reply(lambda _: None)
    bus.close()
    bus.publish_head(KEY, 1, True)
    bus.publish_reply(channel, {"n": 1})
    assert not bus.connected


def test_closing_ends_the_threads_of_the_bus(bus: MemoryBus | RedisBus) -> None:
    before = {thread.name for thread in threading.enumerate()}
    bus.close()
    assert "bus-subscriber" not in {thread.name for thread in threading.enumerate()}
    assert ("bus-subscriber" in before) == isinstance(bus, RedisBus)


def test_a_look_at_the_rows_tells_what_was_lost_and_only_that(bus: MemoryBus | RedisBus) -> None:
    rows = {KEY: Head(5, False), OTHER: Head(2, False)}
    asked: list[set[ExecKey]] = []

    def read(keys: Sequence[ExecKey]) -> list[tuple[ExecKey, Head]]:
        asked.append(set(keys))
        return [(key, rows[key]) for key in keys]

    bus.refresh(read)
    assert asked == []
    with bus.watch(KEY) as watch, bus.watch(KEY) as second, bus.watch(OTHER) as other:
        bus.publish_head(OTHER, 2, False)
        assert other.wait(LONG_SECONDS) == Head(2, False)
        bus.refresh(read)
        assert (watch.wait(0), second.wait(0), other.wait(0)) == (Head(5, False), Head(5, False), None)
        bus.refresh(read)
        assert watch.wait(0) is None
        rows[KEY] = Head(5, True)
        bus.refresh(read)
        assert watch.wait(0) == Head(5, True)
    assert asked == [{KEY, OTHER}] * 3
    with bus.watch(KEY) as watch:
        bus.refresh(read)
        assert watch.wait(0) == Head(5, True)
