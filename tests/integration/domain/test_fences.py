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
#: Writes that name the generation. The others are held to the owner's epoch, which a new generation of another owner
#: or of another start of the owner always changes.
BY_GENERATION = ("mark_ready", "mark_ready lost", "touch", "touch with op", "claim", "finish_release")


def unchanged(world: World, write: Callable[[], object]) -> None:
    before = world.dump()
    try:
        refused = not write()
    except SandloomError:
        refused = True
    assert refused
    assert world.dump() == before


def waiting(world: World) -> tuple[Fence, Exec]:
    """An open sandbox with one command QUEUED and one RUNNING; returns the RUNNING one."""
    route = world.ready()
    world.queued(route, "queued", "a")
    return route.fence, world.running(route, "running", "b")


@pytest.mark.parametrize("name", WRITES)
def test_another_workers_write_changes_nothing(world: World, name: str):
    world.register("w1")
    fence, record = waiting(world)
    world.register("w2", capacity=0)
    other = dataclasses.replace(fence, worker_id="w3")
    unchanged(world, lambda: WRITES[name](world, other, record))
    if name not in ("renew", "unregister"):  # w2 may of course renew its own lease
        other = dataclasses.replace(fence, worker_id="w2")
        unchanged(world, lambda: WRITES[name](world, other, record))


@pytest.mark.parametrize("epoch", [0, 1, 3])
@pytest.mark.parametrize("name", WRITES)
def test_another_epochs_write_changes_nothing(world: World, name: str, epoch: int):
    world.register()
    world.restart()
    fence, record = waiting(world)
    assert fence.worker_epoch == 2
    other = dataclasses.replace(fence, worker_epoch=epoch)
    unchanged(world, lambda: WRITES[name](world, other, record))


@pytest.mark.parametrize("generation", [0, 1, 3])
@pytest.mark.parametrize("name", BY_GENERATION)
def test_another_generations_write_changes_nothing(world: World, name: str, generation: int):
    world.register()
    world.released(world.ready())
    fence, record = waiting(world)
    assert fence.generation == 2
    other = dataclasses.replace(fence, generation=generation)
    unchanged(world, lambda: WRITES[name](world, other, record))


@pytest.mark.parametrize("name", [n for n in WRITES if n not in ("renew", "unregister")])
def test_a_write_delayed_past_a_restart_changes_nothing(world: World, name: str):
    world.register()
    fence, record = waiting(world)
    world.restart()
    unchanged(world, lambda: WRITES[name](world, fence, record))
    world.sandboxes.mark_ready(world.sandboxes.get(key()).fence)
    unchanged(world, lambda: WRITES[name](world, fence, record))


@pytest.mark.parametrize("name", [n for n in WRITES if n not in ("renew", "unregister")])
def test_a_write_delayed_past_release_and_resolve_changes_nothing(world: World, name: str):
    world.register()
    route = world.ready()
    record = world.running(route)
    assert world.finish(record)
    world.released(route)
    unchanged(world, lambda: WRITES[name](world, route.fence, record))
    world.ready()
    unchanged(world, lambda: WRITES[name](world, route.fence, record))


@pytest.mark.parametrize("name", ["renew", "claim", "append", "finish", "refuse", "mark_ready"])
def test_a_worker_that_was_declared_lost_cannot_go_on(world: World, name: str):
    world.register()
    route = world.ready()
    record = world.running(route)
    world.lose()
    world.reclaim.end_lost_execs()
    world.set_orphans_due()
    assert world.reclaim.release_orphans() == 1
    unchanged(world, lambda: WRITES[name](world, route.fence, record))


@pytest.mark.parametrize("status", ["RELEASING", "RELEASED", "SUSPENDING", "SUSPENDED", "ASSIGNED"])
@pytest.mark.parametrize("name", ["touch", "touch with op", "claim"])
def test_a_sandbox_that_is_not_open_takes_no_calls(world: World, name: str, status: str):
    world.register()
    fence, _ = waiting(world)
    world.set_status(fence.key, status)
    queued = world.exec("queued")
    unchanged(world, lambda: WRITES[name](world, fence, queued))


@pytest.mark.parametrize("status", ["RELEASING", "RELEASED", "SUSPENDING", "SUSPENDED"])
def test_only_what_is_assigned_becomes_ready(world: World, status: str):
    fence = world.register() and world.resolve().fence
    world.set_status(fence.key, status)
    unchanged(world, lambda: world.sandboxes.mark_ready(fence))


@pytest.mark.parametrize("status", ["ASSIGNED", "READY", "RUNNING", "RELEASED", "SUSPENDED"])
def test_only_what_is_releasing_is_released(world: World, status: str):
    fence = world.register() and world.resolve().fence
    world.set_status(fence.key, status)
    unchanged(world, lambda: world.sandboxes.finish_release(fence))


def test_a_release_waits_for_commands_that_have_not_ended(world: World):
    route = world.register() and world.ready()
    record = world.running(route)
    world.sandboxes.begin_release(route.key, None, "tester", "released")
    unchanged(world, lambda: world.sandboxes.finish_release(route.fence))
    assert world.finish(record)
    assert world.sandboxes.finish_release(route.fence)
    world.check()


@pytest.mark.parametrize("name", ["append", "finish", "refuse", "claim"])
def test_nothing_follows_the_end_of_a_command(world: World, name: str):
    route = world.register() and world.ready()
    record = world.running(route)
    assert world.finish(record)
    ended = world.execs.get(record.key)
    unchanged(world, lambda: WRITES[name](world, route.fence, ended))
    unchanged(world, lambda: WRITES[name](world, route.fence, record))


@pytest.mark.parametrize("name", ["append", "finish"])
@pytest.mark.parametrize("seq", [0, 1, 2, 4])
def test_events_follow_only_the_event_they_were_made_after(world: World, name: str, seq: int):
    route = world.register() and world.ready()
    record = world.running(route)
    assert WRITES["append"](world, route.fence, record)
    late = dataclasses.replace(record, last_seq=seq)
    unchanged(world, lambda: WRITES[name](world, route.fence, late))


@pytest.mark.parametrize(("name", "exec_id"), [("append", "queued"), ("finish", "queued"), ("refuse", "running")])
def test_each_write_wants_its_own_status(world: World, name: str, exec_id: str):
    world.register()
    fence, _ = waiting(world)
    record = world.exec(exec_id)
    unchanged(world, lambda: WRITES[name](world, fence, record))
