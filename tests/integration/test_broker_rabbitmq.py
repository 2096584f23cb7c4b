"""Sending to RabbitMQ: what is refused, what is confirmed, and who notices that it restarted."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from kombu import Exchange, Queue

from sandloom.broker.publisher import KombuPublisher
from sandloom.broker.queues import MAINTENANCE_QUEUE, worker_queue, worker_queues
from sandloom.broker.rabbitmq import connected, make_queues
from sandloom.errors import Unavailable
from sandloom.ids import ExecKey
from sandloom.settings import Settings
from tests.services.proxy import Proxy
from tests.services.rabbitmq import RabbitServer
from workers.app import WorkerApp, create_celery
from workers.beat import PatientScheduler
from workers.config import maintenance_queues

KEY = ExecKey("default", "sandbox-1", "exec-1")
QUEUE = worker_queue("w1")
LONG_SECONDS = 60.0


@pytest.fixture
def url(rabbit_url: str) -> str:
    assert make_queues(rabbit_url, worker_queues("w1", rabbit_url))
    return rabbit_url


@pytest.fixture
def publisher(url: str) -> Iterator[KombuPublisher]:
    opened = KombuPublisher(url, timeout_seconds=LONG_SECONDS)
    yield opened
    opened.close()


def waiting(url: str, name: str) -> int:
    with connected(url) as connection:
        return int(connection.channel().queue_declare(name, passive=True).message_count)


def is_failing(publisher: KombuPublisher) -> bool:
    return publisher.failing


def test_what_was_sent_is_in_the_queue_when_the_call_returns(publisher: KombuPublisher, url: str) -> None:
    assert publisher.ring(QUEUE, KEY, 1)
    publisher.send(QUEUE, "sandloom.exec", {}, ignore_result=False)
    assert waiting(url, QUEUE) == 2


def test_a_queue_that_is_not_there_or_full_is_told_and_hinders_nobody_else(publisher: KombuPublisher, url: str) -> None:
    small = Queue("small", Exchange(""), "small", max_length=1, queue_arguments={"x-overflow": "reject-publish"})
    assert make_queues(url, [small])
    publisher.send("small", "sandloom.x", {})
    for _ in range(3):
        with pytest.raises(Unavailable, match="full"):
            publisher.send("small", "sandloom.x", {})
        with pytest.raises(Unavailable, match="nobody made this queue"):
            publisher.send("sandloom.worker.none", "sandloom.x", {})
        assert publisher.ring(QUEUE, KEY, 1)
        assert not publisher.failing
    assert waiting(url, "small") == 1


def test_queues_are_bounded_and_a_workers_own_ends_when_unused(url: str) -> None:
    queues: list[Any] = worker_queues("w1", url)
    for queue in queues:
        assert queue.max_length == 20_000
        assert queue.queue_arguments == {"x-overflow": "reject-publish"}
        assert (queue.expires is not None) == (queue.name == QUEUE)
    # The very same arguments again are no error; others would be one.
    assert make_queues(url, worker_queues("w1", url))


def test_after_a_restart_durable_queues_are_there_and_sending_goes_on(
    publisher: KombuPublisher, url: str, rabbit: RabbitServer
) -> None:
    publisher.send(QUEUE, "sandloom.exec", {}, ignore_result=False)
    assert publisher.ring(QUEUE, KEY, 1)
    rabbit.stop()
    assert not publisher.ring(QUEUE, KEY, 1)
    assert is_failing(publisher)
    rabbit.start()
    deadline = time.monotonic() + LONG_SECONDS
    while not publisher.ring(QUEUE, KEY, 2):
        assert time.monotonic() < deadline
    assert not is_failing(publisher)
    # What a direct client sent was on the disk; the doorbell before the restart is in its row only.
    assert waiting(url, QUEUE) == 2
    with connected(url) as connection:
        assert connection.channel().basic_get(QUEUE).headers["task"] == "sandloom.exec"


@pytest.fixture
def proxy(rabbit_url: str) -> Iterator[Proxy]:
    assert make_queues(rabbit_url, maintenance_queues())
    with Proxy(urlsplit(rabbit_url).port or 0) as opened:
        yield opened


@pytest.fixture
def app(rabbit_url: str, redis_url: str, proxy: Proxy) -> WorkerApp:
    """Reaches RabbitMQ through the proxy."""
    at = urlsplit(rabbit_url)
    through = at._replace(netloc=f"{at.username}:{at.password}@127.0.0.1:{proxy.port}").geturl()
    settings = {"SANDBOX_BROKER_URL": through, "SANDBOX_BUS_URL": redis_url, "SANDBOX_RESULT_BACKEND": redis_url}
    return create_celery(Settings.load(settings), maintenance_queues())


def test_beat_is_heard_again_once_its_connection_broke(rabbit_url: str, proxy: Proxy, app: WorkerApp) -> None:
    scheduler = PatientScheduler(app)
    [entry] = [entry for entry in scheduler.schedule.values() if entry.task == "sandloom.maintenance.prune"]

    def sent() -> int:
        scheduler.apply_entry(entry, producer=scheduler.producer)
        return waiting(rabbit_url, MAINTENANCE_QUEUE)

    assert sent() == 1
    proxy.reset_connections()
    assert sent() == 1
    assert sent() == 2
    scheduler.close()
