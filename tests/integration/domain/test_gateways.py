"""What the API calls: admit, ring, wait. The bus is the in-process one; the worker is a thread or, for what a real one
cannot be made to do, an object that answers as told."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from sandloom.errors import ExecNotFound, SandloomError, StaleRoute, Unavailable, WorkerLost
from sandloom.execs.gateway import ExecGateway
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
        self.sandboxes = SandboxGateway(world.sandboxes, world.suspensions, self.worker)
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
