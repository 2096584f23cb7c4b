"""What the API calls: admit, ring, wait. The bus is the in-process one; the worker is a thread or, for what a real one
cannot be made to do, an object that answers as told."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from sandloom.db import Database
from sandloom.errors import ExecNotFound, SandloomError, StaleRoute, Unavailable, WorkerLost
from sandloom.execs.gateway import ExecGateway
from sandloom.execs.records import Exec
from sandloom.ids import ExecKey
from sandloom.sandboxes.gateway import SandboxGateway
from sandloom.streams import MemoryBus
from tests.integration.domain.world import World, key, request

Answer = Callable[[str, Mapping[str, Any]], dict[str, Any]]


class Worker:
    """Publisher and WorkerControl in one: what was sent, and what is done about it."""

    def __init__(self) -> None:
        self.rung: list[tuple[str, ExecKey, int]] = []
        self.called: list[tuple[str, str, dict[str, Any]]] = []
        self.on_ring: Callable[[ExecKey, int], None] = lambda key, generation: None
        self.answer: Answer = lambda task, args: {}

    def ring(self, queue: str, key: ExecKey, generation: int) -> bool:
        self.rung.append((queue, key, generation))
        self.on_ring(key, generation)
        return True

    def call(
        self, queue: str, task: str, tenant_id: str, args: Mapping[str, Any], *, timeout_seconds: float,
        op_id: str | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        self.called.append((queue, task, dict(args)))
        return self.answer(task, args)

    def post(self, queue: str, task: str, tenant_id: str, args: Mapping[str, Any], *, ttl_seconds: float) -> bool:
        self.called.append((queue, task, dict(args)))
        return True


class Scene:
    def __init__(self, world: World) -> None:
        self.world = world
        self.worker = Worker()
        self.bus = MemoryBus()
        self.sandboxes = SandboxGateway(world.sandboxes, self.worker)
        self.execs = ExecGateway(world.execs, world.sandboxes, self.sandboxes, self.worker, self.worker, self.bus)

    def run_at_once(self, exec_key: ExecKey, generation: int) -> None:
        """The whole command, before the doorbell call has returned."""
        record = self.world.execs.claim(exec_key, generation, "w1", 1)
        assert record is not None
        self.bus.publish_head(exec_key, 2, False)
        assert self.world.finish(record, events=[("stdout", b"done")])
        self.bus.publish_head(exec_key, 4, True)

    def cancel_silently(self, exec_key: ExecKey) -> None:
        """An end that nobody publishes."""
        assert self.world.execs.cancel(exec_key).cancelled

    def make_ready(self, task: str, args: Mapping[str, Any]) -> dict[str, Any]:
        assert (task, args["generation"]) == ("sandloom.connect", 1)
        self.world.sandboxes.mark_ready(self.world.sandboxes.get(key(args["sandbox_id"])).fence)
        return {}


@pytest.fixture
def scene(world: World) -> Iterator[Scene]:
    scene = Scene(world)
    yield scene
    scene.bus.close()


def fail_with(error: SandloomError) -> Answer:
    def answer(task: str, args: Mapping[str, Any]) -> dict[str, Any]:
        raise error

    return answer


def test_a_command_that_ends_before_the_wait_begins_is_not_missed(scene: Scene):
    route = scene.world.started()
    scene.worker.on_ring = scene.run_at_once
    for number in range(20):
        record = scene.execs.run(route.key, 1, request(f"run-{number}"), timeout_seconds=60)
        assert (record.status, record.stdout) == ("SUCCEEDED", b"done")
    assert scene.worker.rung[0] == ("sandloom.worker.w1", ExecKey("default", "box", "run-0"), 1)


def test_a_command_on_another_thread_wakes_its_waiter(scene: Scene):
    route = scene.world.started()

    def in_a_thread(exec_key: ExecKey, generation: int) -> None:
        threading.Thread(target=scene.run_at_once, args=(exec_key, generation)).start()

    scene.worker.on_ring = in_a_thread
    record = scene.execs.run(route.key, 1, request(), timeout_seconds=60)
    assert record.terminal


def test_an_end_that_the_bus_lost_is_found_in_the_rows(scene: Scene, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sandloom.execs.gateway.REREAD_SECONDS", 0.02)
    route = scene.world.started()
    scene.worker.on_ring = lambda exec_key, generation: scene.cancel_silently(exec_key)
    assert scene.execs.run(route.key, 1, request(), timeout_seconds=60).status == "CANCELLED"


def test_a_closed_bus_does_not_hang_a_waiter(scene: Scene, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sandloom.execs.gateway.REREAD_WITHOUT_BUS_SECONDS", 0.02)
    route = scene.world.started()
    scene.worker.on_ring = scene.run_at_once
    scene.bus.close()
    assert scene.execs.run(route.key, 1, request(), timeout_seconds=60).terminal


def test_a_wait_ends_at_its_time_with_the_command_so_far(scene: Scene):
    route = scene.world.started()
    for wait in (0.0, 0.05):
        record = scene.execs.run(route.key, 1, request(), timeout_seconds=wait)
        assert (record.status, record.stdout) == ("QUEUED", b"")
        assert scene.execs.wait(record.key, wait).status == "QUEUED"
    assert len(scene.worker.rung) == 1, "the same command again rings no second time"


def test_the_same_command_again_gets_the_same_end(scene: Scene):
    route = scene.world.started()
    scene.worker.on_ring = scene.run_at_once
    first = scene.execs.run(route.key, 1, request(), timeout_seconds=60)
    assert scene.execs.run(route.key, 1, request(), timeout_seconds=60) == first
    assert scene.execs.wait(first.key, 60) == first
    assert len(scene.worker.rung) == 1


def test_a_waiter_learns_of_a_cancel(scene: Scene):
    route = scene.world.started()
    done: list[Exec] = []

    def wait_too(exec_key: ExecKey, generation: int) -> None:
        waiter = threading.Thread(target=lambda: done.append(scene.execs.wait(exec_key, 60)))
        waiter.start()
        assert scene.execs.cancel(exec_key, generation).cancelled
        waiter.join(30)

    scene.worker.on_ring = wait_too
    assert scene.execs.run(route.key, 1, request(), timeout_seconds=60).status == "CANCELLED"
    assert [record.status for record in done] == ["CANCELLED"]
    assert scene.worker.called == []


def test_cancel_of_a_running_command_is_told_to_its_worker(scene: Scene):
    record = scene.world.running(scene.world.started())
    result = scene.execs.cancel(record.key, None)
    assert (result.cancelled, result.ring_worker) == (True, True)
    (queue, task, args) = scene.worker.called[0]
    assert (queue, task) == ("sandloom.worker.w1", "sandloom.cancel")
    assert (args["sandbox_id"], args["exec_id"]) == ("box", "run")
    scene.world.finish(record)
    assert not scene.execs.cancel(record.key, 1).cancelled
    assert len(scene.worker.called) == 1
    with pytest.raises(StaleRoute):
        scene.execs.cancel(record.key, 2)


def test_waiting_for_nothing(scene: Scene):
    for wait in (0.0, 60.0):
        with pytest.raises(ExecNotFound):
            scene.execs.wait(ExecKey("default", "box", "none"), wait)


def test_an_assigned_sandbox_is_made_ready_first(scene: Scene):
    scene.world.register()
    route = scene.world.resolve()
    scene.worker.answer = scene.make_ready
    record, created = scene.execs.start(route.key, 1, request())
    assert (record.status, created) == ("QUEUED", True)
    assert scene.sandboxes.connect(route.key, 1).status == "RUNNING"
    assert len(scene.worker.called) == 1, "a ready sandbox needs no worker"


def test_a_worker_that_does_not_answer_lets_nothing_be_admitted(scene: Scene):
    scene.world.register()
    route = scene.world.resolve()
    scene.worker.answer = fail_with(WorkerLost())
    with pytest.raises(WorkerLost):
        scene.execs.start(route.key, 1, request())
    with pytest.raises(ExecNotFound):
        scene.world.exec("run")
    with pytest.raises(StaleRoute):
        scene.sandboxes.connect(route.key, 2)


def test_release_is_done_when_the_worker_says_so(scene: Scene):
    route = scene.world.started()

    def release(task: str, args: Mapping[str, Any]) -> dict[str, Any]:
        assert scene.world.sandboxes.finish_release(route.fence)
        return {}

    scene.worker.answer = release
    assert scene.sandboxes.release(route.key, 1, "tester").status == "RELEASED"
    assert scene.sandboxes.release(route.key, 1, "tester").status == "RELEASED"
    assert len(scene.worker.called) == 1


@pytest.mark.parametrize("error", [WorkerLost(), Unavailable(), StaleRoute()])
def test_release_without_an_answer_goes_on_later(scene: Scene, error: SandloomError):
    route = scene.world.started()
    scene.worker.answer = fail_with(error)
    assert scene.sandboxes.release(route.key, None, "tester").status == "RELEASING"
    with pytest.raises(StaleRoute):
        scene.sandboxes.release(route.key, 7, "tester")
    assert scene.world.sandboxes.finish_release(route.fence)
    assert scene.sandboxes.release(route.key, None, "tester").status == "RELEASED"


def test_an_outage_of_the_database_ends_a_wait_with_its_error(db: Database, monkeypatch: pytest.MonkeyPatch):
    scene = Scene(World(db))
    route = scene.world.started()

    def fail(*args: Any, **kwargs: Any) -> Exec:
        raise Unavailable

    def break_and_wake(exec_key: ExecKey, generation: int) -> None:
        monkeypatch.setattr(scene.world.execs, "get", fail)
        scene.bus.publish_head(exec_key, 3, True)

    scene.worker.on_ring = break_and_wake
    with pytest.raises(Unavailable):
        scene.execs.run(route.key, 1, request(), timeout_seconds=60)
