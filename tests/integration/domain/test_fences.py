"""A worker that is not the current owner changes nothing, in no table, whatever it writes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from sandloom.errors import SandloomError
from sandloom.execs.records import Exec
from sandloom.sandboxes.records import Fence
from tests.integration.domain.world import DONE, REFUSED, World, key

Write = Callable[[World, Fence, Exec], object]

WRITES: dict[str, Write] = {
    "mark_ready": lambda w, f, e: w.sandboxes.mark_ready(f),
    "mark_ready lost": lambda w, f, e: w.sandboxes.mark_ready(f, "lost"),
    "touch": lambda w, f, e: w.sandboxes.touch(f),
    "touch with op": lambda w, f, e: w.sandboxes.touch(f, "op"),
    "claim": lambda w, f, e: w.execs.claim(e.key, f.generation, f.worker_id, f.worker_epoch),
    "append": lambda w, f, e: w.execs.append(e.key, f.worker_id, f.worker_epoch, e.last_seq, [("stdout", b"x")]),
    "finish": lambda w, f, e: w.execs.finish(e.key, f.worker_id, f.worker_epoch, e.last_seq, [("stdout", b"x")], DONE),
    "refuse": lambda w, f, e: w.execs.refuse(e.key, f.worker_id, f.worker_epoch, REFUSED),
    "finish_release": lambda w, f, e: w.sandboxes.finish_release(f),
    "renew": lambda w, f, e: w.fleet.renew(f.worker_id, f.worker_epoch, 600, {}),
    "unregister": lambda w, f, e: w.fleet.unregister(f.worker_id, f.worker_epoch),
}
#: Writes on a sandbox and its commands; the others are about the worker's own lease.
SANDBOX_WRITES = tuple(name for name in WRITES if name not in ("renew", "unregister"))
#: Writes that name the generation. The others are held to the owner's epoch and to a command that has not ended.
BY_GENERATION = ("mark_ready", "mark_ready lost", "touch", "touch with op", "claim", "finish_release")


def unchanged(world: World, fence: Fence, record: Exec, *names: str) -> None:
    """Each of the writes (default: all) is refused, by an error or by its answer, and leaves every row as it was."""
    before = world.dump()
    for name in names or WRITES:
        try:
            answer = WRITES[name](world, fence, record)
        except SandloomError:
            answer = None
        assert not answer, f"{name} was let through"
        assert world.dump() == before, f"{name} changed something"


def waiting(world: World) -> tuple[Fence, Exec]:
    """An open sandbox with one command QUEUED and one RUNNING; returns the RUNNING one."""
    route = world.ready()
    world.queued(route, "queued", "a")
    return route.fence, world.running(route, "running", "b")


def test_another_workers_writes_change_nothing(world: World):
    world.register("w1")
    fence, record = waiting(world)
    unchanged(world, dataclasses.replace(fence, worker_id="w3"), record)
    world.register("w2", capacity=0)
    unchanged(world, dataclasses.replace(fence, worker_id="w2"), record, *SANDBOX_WRITES)


@pytest.mark.parametrize("epoch", [0, 1, 3])
def test_another_epochs_writes_change_nothing(world: World, epoch: int):
    world.register()
    world.restart()
    fence, record = waiting(world)
    assert fence.worker_epoch == 2
    unchanged(world, dataclasses.replace(fence, worker_epoch=epoch), record)


@pytest.mark.parametrize("generation", [0, 1, 3])
def test_another_generations_writes_change_nothing(world: World, generation: int):
    world.register()
    world.released(world.ready())
    fence, record = waiting(world)
    assert fence.generation == 2
    unchanged(world, dataclasses.replace(fence, generation=generation), record, *BY_GENERATION)


def test_writes_delayed_past_a_restart_change_nothing(world: World):
    world.register()
    fence, record = waiting(world)
    world.restart()
    unchanged(world, fence, record)
    world.sandboxes.mark_ready(world.sandboxes.get(key()).fence)
    unchanged(world, fence, record)


def test_writes_delayed_past_release_and_resolve_change_nothing(world: World):
    world.register()
    route = world.ready()
    record = world.running(route)
    assert world.finish(record)
    world.released(route)
    unchanged(world, route.fence, record, *SANDBOX_WRITES)
    world.ready()
    unchanged(world, route.fence, record, *SANDBOX_WRITES)


def test_a_worker_that_was_declared_lost_cannot_go_on(world: World):
    world.register()
    fence, record = waiting(world)
    world.lose()
    world.reclaim.end_lost_execs()
    world.set_orphans_due()
    assert world.reclaim.release_orphans() == 1
    unchanged(world, fence, record)


@pytest.mark.parametrize("status", ["RELEASING", "RELEASED", "SUSPENDING", "SUSPENDED", "ASSIGNED"])
def test_a_sandbox_that_is_not_open_takes_no_calls(world: World, status: str):
    world.register()
    fence, _ = waiting(world)
    world.set_status(fence.key, status)
    unchanged(world, fence, world.exec("queued"), "touch", "touch with op", "claim")
    if status != "ASSIGNED":
        unchanged(world, fence, world.exec("queued"), "mark_ready", "mark_ready lost")
    if status != "RELEASING":
        unchanged(world, fence, world.exec("queued"), "finish_release")


def test_a_release_waits_for_commands_that_have_not_ended(world: World):
    route = world.started()
    record = world.running(route)
    world.sandboxes.begin_release(route.key, None, "tester", "released")
    unchanged(world, route.fence, record, "finish_release")
    assert world.finish(record)
    assert world.sandboxes.finish_release(route.fence)
    world.check()


def test_nothing_follows_the_end_of_a_command(world: World):
    route = world.started()
    record = world.running(route)
    assert world.finish(record)
    for seen in (record, world.execs.get(record.key)):
        unchanged(world, route.fence, seen, "append", "finish", "refuse", "claim")


@pytest.mark.parametrize("seq", [0, 1, 2, 4])
def test_events_follow_only_the_event_they_were_made_after(world: World, seq: int):
    route = world.started()
    record = world.running(route)
    assert WRITES["append"](world, route.fence, record)
    unchanged(world, route.fence, dataclasses.replace(record, last_seq=seq), "append", "finish")


def test_each_write_wants_its_own_status(world: World):
    world.register()
    fence, running = waiting(world)
    unchanged(world, fence, world.exec("queued"), "append", "finish")
    unchanged(world, fence, running, "refuse", "claim")
