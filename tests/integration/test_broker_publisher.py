"""Publishing: over Redis and in process, through restarts, and never for long."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest
import redis
from kombu import Connection

from sandloom.broker import publisher as module
from sandloom.broker.kombu_link import KombuLink
from sandloom.broker.message import task_message
from sandloom.broker.publisher import KombuPublisher
from sandloom.broker.queues import broker_url, queue, transport_options
from sandloom.broker.redis_link import RedisLink
from sandloom.errors import Unavailable
from sandloom.ids import ExecKey
from tests.services.account import free_port
from tests.services.redis import RedisServer

KEY = ExecKey("default", "sandbox-1", "exec-1")
QUEUE = "sandloom.worker.w-1"
NAMESPACE = "blue"
LONG_SECONDS = 30.0


@pytest.fixture(params=["memory", pytest.param("redis", marks=pytest.mark.server)])
def url(request: pytest.FixtureRequest) -> str:
    if request.param == "memory":
        return f"sandloom-memory://localhost/{request.node.name}"
    redis_url: str = request.getfixturevalue("redis_url")
    return redis_url


@pytest.fixture
def publisher(url: str) -> Iterator[KombuPublisher]:
    opened = KombuPublisher(url, namespace=NAMESPACE, timeout_seconds=LONG_SECONDS)
    yield opened
    opened.close()


def take(url: str, count: int, name: str = QUEUE) -> list[Any]:
    """The messages of a queue as a consumer gets them, acknowledged."""
    taken: list[Any] = []
    options = transport_options(url, NAMESPACE, consume=True)
    with (
        Connection(broker_url(url), transport_options=options) as connection,
        connection.Consumer([queue(name)], callbacks=[lambda body, message: taken.append((body, message))]),
    ):
        while len(taken) < count:
            connection.drain_events(timeout=LONG_SECONDS)
        for _, message in taken:
            message.ack()
    return taken


def until_blocked(publisher: KombuPublisher) -> None:
    """Until a thread waits for a turn."""
    deadline = time.monotonic() + LONG_SECONDS
    while not publisher._links._turns._cond._waiters:  # type: ignore[attr-defined]
        assert time.monotonic() < deadline


def test_a_doorbell_arrives_as_a_task_message(publisher: KombuPublisher, url: str) -> None:
    assert publisher.ring(QUEUE, KEY, 7)
    [(body, message)] = take(url, 1)
    assert body[0] == []
    assert body[1] == {"v": 1, "tenant_id": "default", "sandbox_id": "sandbox-1", "exec_id": "exec-1", "generation": 7}
    assert message.headers["task"] == "sandloom.ring"
    assert message.properties["correlation_id"] == message.headers["id"]
    assert (message.content_type, message.content_encoding) == ("application/json", "utf-8")


def test_messages_arrive_in_order_from_one_thread(publisher: KombuPublisher, url: str) -> None:
    for generation in range(1, 101):
        assert publisher.ring(QUEUE, KEY, generation)
    assert [body[1]["generation"] for body, _ in take(url, 100)] == list(range(1, 101))


def test_many_threads_share_few_connections(
    publisher: KombuPublisher, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sandloom.broker.links.TURN_SECONDS", LONG_SECONDS)
    with ThreadPoolExecutor(32) as pool:
        assert all(pool.map(lambda number: publisher.ring(QUEUE, KEY, number), range(1, 501)))
    assert len(publisher._links._idle) <= module.MAX_LINKS
    assert {body[1]["generation"] for body, _ in take(url, 500)} == set(range(1, 501))


def test_the_task_id_can_be_given(publisher: KombuPublisher, url: str) -> None:
    assert publisher.send(QUEUE, "sandloom.connect", {"envelope": {}}, task_id="an-id") == "an-id"
    [(_, message)] = take(url, 1)
    assert message.headers["id"] == message.headers["root_id"] == "an-id"


def test_arguments_that_are_not_json_do_not_count_against_the_broker(publisher: KombuPublisher) -> None:
    with pytest.raises(TypeError):
        publisher.send(QUEUE, "sandloom.connect", {"envelope": b"bytes"})
    assert publisher.ring(QUEUE, KEY, 1)


def test_redis_keys_carry_the_namespace(redis_server: RedisServer, redis_url: str) -> None:
    publisher = KombuPublisher(redis_url, namespace=NAMESPACE, timeout_seconds=LONG_SECONDS)
    publisher.ring(QUEUE, KEY, 1)
    publisher.close()
    with redis_server.client(int(redis_url.rpartition("/")[2])) as client:
        assert client.keys("*") == [f"{NAMESPACE}:{QUEUE}".encode()]
        document = json.loads(client.lindex(f"{NAMESPACE}:{QUEUE}", 0))
    assert document["headers"]["task"] == "sandloom.ring"


def test_the_bytes_in_redis_are_those_of_kombu(redis_server: RedisServer, redis_url: str) -> None:
    message = task_message("sandloom.connect", {"envelope": {"text": "ä€"}}, task_id="an-id", ignore_result=False)
    options = transport_options(redis_url, NAMESPACE, consume=False)
    for link in (
        KombuLink(Connection(redis_url, transport_options=options), LONG_SECONDS),
        RedisLink(redis_url, NAMESPACE, LONG_SECONDS),
    ):
        link.publish(QUEUE, message)
        link.close()
    with redis_server.client(int(redis_url.rpartition("/")[2])) as client:
        assert client.keys("*") == [f"{NAMESPACE}:{QUEUE}".encode()]
        ours, kombus = client.lrange(f"{NAMESPACE}:{QUEUE}", 0, -1)
    # Equal to the byte, but for the one part that is random.
    tags = [json.loads(document)["properties"]["delivery_tag"].encode() for document in (ours, kombus)]
    assert tags[0] != tags[1]
    assert ours.replace(tags[0], b"") == kombus.replace(tags[1], b"")


@pytest.mark.parametrize("word", ["none", "CERT_NONE"])
def test_certificates_are_named_in_kombus_words_or_in_those_of_redis(word: str) -> None:
    with pytest.raises(redis.ConnectionError):
        RedisLink(f"rediss://127.0.0.1:{free_port()}/0?ssl_cert_reqs={word}", NAMESPACE, 0.5)


def test_a_publisher_survives_a_restart_of_redis(private_redis: RedisServer) -> None:
    publisher = KombuPublisher(private_redis.url(), namespace=NAMESPACE, timeout_seconds=LONG_SECONDS)
    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(lambda number: publisher.ring(QUEUE, KEY, number), range(1, 65)))
    private_redis.restart()
    # The idle connections are all broken; the very next doorbell gets through nevertheless.
    assert publisher.ring(QUEUE, KEY, 65)
    assert len(take(private_redis.url(), 65)) == 65
    publisher.close()


def test_while_redis_is_down_a_doorbell_is_refused_and_later_it_gets_through(private_redis: RedisServer) -> None:
    publisher = KombuPublisher(private_redis.url(), namespace=NAMESPACE, timeout_seconds=LONG_SECONDS)
    assert publisher.ring(QUEUE, KEY, 1)
    private_redis.stop()
    assert not publisher.ring(QUEUE, KEY, 2)
    with pytest.raises(Unavailable):
        publisher.send(QUEUE, "sandloom.connect", {})
    private_redis.start()
    deadline = time.monotonic() + LONG_SECONDS
    while not publisher.ring(QUEUE, KEY, 3):
        assert time.monotonic() < deadline
    assert [body[1]["generation"] for body, _ in take(private_redis.url(), 2)] == [1, 3]
    publisher.close()


def test_without_redis_a_thousand_doorbells_take_no_time() -> None:
    publisher = KombuPublisher(f"redis://:hunter2@127.0.0.1:{free_port()}/0")
    started = time.monotonic()
    assert not any(publisher.ring(QUEUE, KEY, number) for number in range(1, 1001))
    # Each of them would wait for its own, if nobody remembered.
    assert time.monotonic() - started < 60


def test_with_a_redis_that_is_stopped_no_caller_waits_two_seconds(private_redis: RedisServer) -> None:
    waits = [longest_wait(private_redis)]
    # It may have been this machine that stood still.
    while min(waits) >= 2 and len(waits) < 5:
        waits.append(longest_wait(private_redis))
    assert min(waits) < 2, waits


def longest_wait(private_redis: RedisServer) -> float:
    """Seconds, of callers whose Redis has just stopped to answer."""
    publisher = KombuPublisher(private_redis.url(), namespace=NAMESPACE)
    until_taken(publisher)

    def ring(_: int) -> tuple[bool, float]:
        started = time.monotonic()
        return publisher.ring(QUEUE, KEY, 2), time.monotonic() - started

    os.kill(private_redis.pid, signal.SIGSTOP)
    try:
        with ThreadPoolExecutor(32) as pool:
            outcomes = list(pool.map(ring, range(64)))
    finally:
        os.kill(private_redis.pid, signal.SIGCONT)
    assert not any(sent for sent, _ in outcomes)
    until_taken(publisher)
    publisher.close()
    return max(seconds for _, seconds in outcomes)


def until_taken(publisher: KombuPublisher) -> None:
    deadline = time.monotonic() + LONG_SECONDS
    while not publisher.ring(QUEUE, KEY, 3):
        assert time.monotonic() < deadline


def test_when_all_links_are_busy_a_caller_gives_up_and_nobody_else_is_refused(
    publisher: KombuPublisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sandloom.broker.links.TURN_SECONDS", 0.01)
    with ExitStack() as turns:
        for _ in range(module.MAX_LINKS):
            turns.enter_context(publisher._links.turn())
        with pytest.raises(Unavailable):
            publisher.send(QUEUE, "sandloom.connect", {})
    assert publisher.ring(QUEUE, KEY, 1)


def test_who_waited_for_a_turn_while_another_failed_does_not_try_too(
    publisher: KombuPublisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sandloom.broker.links.TURN_SECONDS", LONG_SECONDS)
    tried: list[str] = []
    publisher._publish = lambda queue, message: tried.append(queue)  # type: ignore[method-assign]
    with ExitStack() as turns, ThreadPoolExecutor(1) as pool:
        for _ in range(module.MAX_LINKS):
            turns.enter_context(publisher._links.turn())
        waiting = pool.submit(publisher.ring, QUEUE, KEY, 1)
        until_blocked(publisher)
        publisher._breaker.failure()
        turns.close()
        assert waiting.result(LONG_SECONDS) is False
    assert tried == []


def test_a_failure_is_logged_once_and_shows_no_password(caplog: pytest.LogCaptureFixture) -> None:
    publisher = KombuPublisher(f"redis://:hunter2@127.0.0.1:{free_port()}/0")
    with caplog.at_level("DEBUG"):
        for _ in range(10):
            publisher.ring(QUEUE, KEY, 1)
        with pytest.raises(Unavailable) as caught:
            publisher.send(QUEUE, "sandloom.connect", {})
    assert len([record for record in caplog.records if record.levelname == "WARNING"]) == 1
    assert "hunter2" not in caplog.text + repr(publisher) + str(caught.value) + str(caught.value.__context__)


def test_nothing_that_goes_wrong_makes_a_doorbell_raise(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> str:
        raise RuntimeError("a bug")

    publisher = KombuPublisher("memory://")
    monkeypatch.setattr(publisher, "send", broken)
    assert publisher.ring(QUEUE, KEY, 1) is False
