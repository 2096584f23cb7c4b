"""Consuming from Redis: what is kept about a message until it is acknowledged."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import redis
from kombu import Connection

from sandloom.broker.consuming import CONSUMING_TRANSPORT
from sandloom.broker.message import is_doorbell
from sandloom.broker.publisher import KombuPublisher
from sandloom.broker.queues import queue, transport_options
from sandloom.ids import ExecKey

KEY = ExecKey("default", "sandbox-1", "exec-1")
QUEUE = "sandloom.worker.w-1"
OTHER_TASK = "sandloom.files.delete"
NAMESPACE = "blue"
LONG_SECONDS = 30.0
pytestmark = pytest.mark.server


@pytest.fixture
def server(redis_url: str) -> Iterator[Any]:
    with redis.Redis.from_url(redis_url) as client:
        yield client


@contextmanager
def taken(url: str, count: int) -> Iterator[list[Any]]:
    """That many messages of the queue, on the connection that took them."""
    messages: list[Any] = []
    options = transport_options(url, NAMESPACE, consume=True)
    with (
        Connection(url, transport=CONSUMING_TRANSPORT, transport_options=options) as connection,
        connection.Consumer([queue(QUEUE)], on_message=messages.append),
    ):
        while len(messages) < count:
            connection.drain_events(timeout=LONG_SECONDS)
        yield messages


@pytest.fixture
def published(redis_url: str) -> None:
    publisher = KombuPublisher(redis_url, namespace=NAMESPACE, timeout_seconds=LONG_SECONDS)
    assert publisher.ring(QUEUE, KEY, 1)
    publisher.send(QUEUE, OTHER_TASK, {}, task_id="precious")
    publisher.close()


def kept(server: Any) -> int:
    return int(server.hlen(f"{NAMESPACE}:unacked"))


@pytest.mark.usefixtures("published")
def test_a_doorbell_leaves_nothing_and_another_message_stays_until_it_is_acknowledged(
    redis_url: str, server: Any
) -> None:
    with taken(redis_url, 2) as messages:
        assert kept(server) == 1
        for message in messages:
            message.ack()
        assert kept(server) == 0
        assert server.zcard(f"{NAMESPACE}:unacked_index") == 0


@pytest.mark.usefixtures("published")
def test_a_connection_that_ends_gives_back_what_was_not_acknowledged_doorbells_aside(redis_url: str) -> None:
    with taken(redis_url, 2):
        pass
    with taken(redis_url, 1) as messages:
        assert [message.headers["id"] for message in messages] == ["precious"]
        assert not is_doorbell(messages[0].headers)
        messages[0].ack()


@pytest.mark.usefixtures("published")
def test_what_is_rejected_is_gone(redis_url: str, server: Any) -> None:
    with taken(redis_url, 2) as messages:
        for message in messages:
            message.reject()
        assert kept(server) == 0
    assert not server.llen(f"{NAMESPACE}:{QUEUE}")
