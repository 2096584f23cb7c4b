"""A real Celery worker over the in-process broker: tasks, remote control and events."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator
from queue import Queue as Fifo
from typing import Any, cast

import pytest
from celery import Celery, _state
from celery.signals import worker_ready

from sandloom.broker.memory import store_of
from sandloom.broker.publisher import KombuPublisher
from sandloom.broker.queues import worker_queue, worker_queues
from sandloom.ids import ExecKey

KEY = ExecKey("default", "sandbox-1", "exec-1")
LONG_SECONDS = 60.0
pytestmark = pytest.mark.filterwarnings("ignore::celery.platforms.SecurityWarning")


class Running:
    """A worker in a thread of this process."""

    def __init__(self, name: str, broker: str | None = None) -> None:
        self.broker = broker or f"sandloom-memory://localhost/{uuid.uuid4().hex}"
        self.got: Fifo[Any] = Fifo()
        self.app = Celery("test", broker=self.broker, set_as_current=False)
        self.app.conf.update(
            task_queues=worker_queues(name),
            task_default_queue="sandloom.maintenance",
            task_default_exchange="",
            worker_prefetch_multiplier=1,
            worker_hijack_root_logger=False,
            worker_redirect_stdouts=False,
            task_ignore_result=True,
            task_acks_late=True,
        )
        self.app.task(name="sandloom.ring", shared=False)(self._ring)
        self.ready = threading.Event()
        self.name = name
        self.uid = uuid.uuid4().hex
        self.worker: Any = None

    def _ring(self, v: int, tenant_id: str, sandbox_id: str, exec_id: str, generation: int) -> None:
        self.got.put(generation)

    def start(self) -> None:
        worker_ready.connect(self._on_ready, weak=False, dispatch_uid=self.uid)
        self.worker = self.app.Worker(
            hostname=f"{self.name}@test", pool="threads", concurrency=2, quiet=True, task_events=True
        )
        self.thread = threading.Thread(target=self.worker.start, daemon=True)
        self.thread.start()
        assert self.ready.wait(LONG_SECONDS)

    def _on_ready(self, sender: Any = None, **_: Any) -> None:
        if sender.app is self.app:
            self.ready.set()

    def stop(self) -> None:
        self.worker.stop()
        self.thread.join(LONG_SECONDS)
        worker_ready.disconnect(dispatch_uid=self.uid)
        # A worker marks its whole process as one in which nobody may wait for results.
        cast(Any, _state)._set_task_join_will_block(False)
        assert not self.thread.is_alive()


@pytest.fixture
def running() -> Iterator[Running]:
    worker = Running("w-1")
    worker.start()
    yield worker
    worker.stop()


def test_doorbells_run_as_tasks_one_prefetched_at_a_time_without_polling(running: Running) -> None:
    publisher = KombuPublisher(running.broker)
    started = time.monotonic()
    for generation in range(1, 501):
        assert publisher.ring(worker_queue("w-1"), KEY, generation)
    seen = {running.got.get(timeout=LONG_SECONDS) for _ in range(500)}
    assert seen == set(range(1, 501))
    # A transport that polls, or that does not wake on an acknowledgement, needs a second for every few of them.
    assert time.monotonic() - started < LONG_SECONDS
    publisher.close()


def test_what_was_published_before_the_worker_started_is_run() -> None:
    worker = Running("w-1")
    publisher = KombuPublisher(worker.broker)
    assert publisher.ring(worker_queue("w-1"), KEY, 1)
    worker.start()
    try:
        assert worker.got.get(timeout=LONG_SECONDS) == 1
    finally:
        worker.stop()
        publisher.close()


def test_remote_control_reaches_the_worker_and_leaves_no_queue_behind(running: Running) -> None:
    control = running.app.control
    assert control.ping(timeout=LONG_SECONDS, limit=1) == [{"w-1@test": {"ok": "pong"}}]
    replies: Any = control.broadcast("active_queues", reply=True, timeout=LONG_SECONDS, limit=1)
    names = {queue["name"] for queue in replies[0]["w-1@test"]}
    assert names == {"sandloom.worker.w-1", "sandloom.dispatch", "sandloom.maintenance"}
    store = store_of(running.broker.rpartition("/")[2])
    assert not [name for name in store._queues if name.endswith("reply.celery.pidbox")]


def test_task_events_reach_a_receiver(running: Running) -> None:
    succeeded: Fifo[dict[str, Any]] = Fifo()
    publisher = KombuPublisher(running.broker)
    with running.app.connection() as connection:
        receiver = running.app.events.Receiver(connection, handlers={"task-succeeded": succeeded.put})
        with receiver.consumer_context() as (consuming, _, _):
            assert publisher.ring(worker_queue("w-1"), KEY, 1)
            while succeeded.empty():
                consuming.drain_events(timeout=LONG_SECONDS)
    publisher.close()
    assert succeeded.get_nowait()["type"] == "task-succeeded"


def test_after_a_worker_was_stopped_another_goes_on_over_the_same_broker() -> None:
    first = Running("w-1")
    first.start()
    first.stop()
    publisher = KombuPublisher(first.broker)
    assert publisher.ring(worker_queue("w-1"), KEY, 5)
    second = Running("w-1", first.broker)
    second.start()
    try:
        assert second.got.get(timeout=LONG_SECONDS) == 5
    finally:
        second.stop()
        publisher.close()
