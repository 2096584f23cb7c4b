"""A worker starts again: what it keeps, what it has lost, and what becomes of the commands."""

from __future__ import annotations

from typing import Any

import pytest

from sandloom.db.tables import execs, sandbox_history, sandboxes, workers
from sandloom.errors import StaleRoute, WorkerIdInUse
from tests.integration.domain.world import World, key


def test_the_first_start(world: World):
    registered = world.register(node={"cores": 2})
    assert (registered.epoch, registered.kept, registered.lost) == (1, 0, 0)
    worker = world.fleet.get("w1")
    assert worker is not None
    assert (worker.live, worker.status, worker.reserved, worker.node) == (True, "ACTIVE", 0, {"cores": 2})
    assert worker.isolation_rank == 2


def test_a_lease_that_lives_keeps_others_out(world: World):
    world.register()
    before = world.dump()
    for values in ({}, {"root_id": "other"}, {"takeover": True, "root_id": "other"}):
        with pytest.raises(WorkerIdInUse):
            world.register(**values)
    assert world.dump() == before


def test_a_lapsed_lease_keeps_others_out_while_its_commands_may_live(world: World):
    world.register()
    now = world.lease_now_us()
    world.set(workers, workers.c.worker_id == "w1", lease_expires_us=now - 30_000_000)
    with pytest.raises(WorkerIdInUse):
        world.register(fence_grace_seconds=3600)
    assert world.register(fence_grace_seconds=10).epoch == 2


@pytest.mark.parametrize("how", ["takeover", "unregistered", "expired", "declared lost"])
def test_a_next_start_is_let_in(world: World, how: str):
    world.started()
    if how == "unregistered":
        world.fleet.unregister("w1", 1)
    elif how == "expired":
        world.set_orphans_due()
    elif how == "declared lost":
        world.lose()
    registered = world.register(takeover=how == "takeover", present=frozenset({key()}))
    assert (registered.epoch, registered.kept, registered.lost) == (2, 1, 0)
    worker = world.fleet.get("w1")
    assert worker is not None
    assert worker.live
    assert not world.fleet.renew("w1", 1, 600, {}), "the earlier epoch is over"
    assert world.fleet.renew("w1", 2, 600, {})
    world.check()


def test_a_kept_sandbox_goes_on_under_the_next_generation(world: World):
    route = world.started()
    world.restart()
    moved = world.sandboxes.get(key())
    assert (moved.generation, moved.worker_epoch, moved.status, moved.workspace) == (2, 2, "ASSIGNED", "kept")
    assert moved.sandbox_uid == route.sandbox_uid
    with pytest.raises(StaleRoute):
        world.sandboxes.current(key(), 1)
    assert world.resolve().generation == 2
    assert [(row.generation, row.release_reason) for row in world.rows(sandbox_history)] == [
        (1, "worker_restarted"),
        (2, None),
    ]
    world.check()


@pytest.mark.parametrize("values", [{"present": frozenset()}, {"root_id": "another disk"}])
def test_what_the_disk_does_not_hold_is_lost_and_said_to_be(world: World, values: dict[str, Any]):
    route = world.started()
    queued, running = world.queued(route, "queued", "a"), world.running(route, "running", "b")
    if "root_id" in values:
        world.set_orphans_due()
    registered = world.restart(**values)
    assert (registered.kept, registered.lost) == (0, 1)
    box = world.row(sandboxes)
    assert (box.status, box.generation, box.held_uid, box.workspace) == ("RELEASED", 1, None, "lost")
    assert world.execs.get(queued.key).status == world.execs.get(running.key).status == "WORKER_LOST"
    assert "before" in (world.execs.get(queued.key).detail or "")
    assert "before" not in (world.execs.get(running.key).detail or "")
    assert world.row(workers).reserved == 0
    again = world.resolve()
    assert (again.generation, again.workspace) == (2, "lost")
    world.check()
    world.released(world.sandboxes.mark_ready(again.fence))
    assert world.resolve().workspace == "new"


def test_a_sandbox_that_never_was_ready_has_nothing_to_lose(world: World):
    world.register()
    world.resolve()
    registered = world.restart(present=frozenset())
    assert (registered.kept, registered.lost) == (1, 0)
    assert world.sandboxes.get(key()).workspace == "new"
    world.check()


def test_queued_commands_wait_on_and_can_be_claimed_once_the_sandbox_is_ready(world: World):
    route = world.started()
    whole = world.queued(route)
    world.restart()
    moved = world.exec("run")
    assert (moved.status, moved.generation, moved.worker_epoch) == ("QUEUED", 2, 2)
    assert moved.queued_us == whole.queued_us
    box = world.sandboxes.get(key())
    assert (box.active_execs, box.exclusive_exec_id) == (1, "run")
    assert [e.generation for e in world.execs.open_for("w1", 2)] == [2]
    assert world.row(execs).ring_us <= moved.queued_us + 60_000_000
    world.check()
    assert world.claim(whole) is None
    assert world.claim(moved) is None, "the sandbox is not ready yet"
    assert world.sandboxes.mark_ready(box.fence).status == "RUNNING"
    claimed = world.claim(moved)
    assert claimed is not None
    assert world.finish(claimed)
    world.check()


def test_running_commands_are_lost_with_their_epoch(world: World):
    route = world.started()
    one, two = world.running(route, "one", "a"), world.running(route, "two", "b")
    assert world.execs.append(one.key, "w1", 1, 2, [("stdout", b"x")])
    world.restart()
    ended = world.execs.get(one.key, output=True)
    assert (ended.status, ended.reason, ended.error) == ("WORKER_LOST", "worker_lost", "SANDBOX_WORKER_LOST")
    assert (ended.stdout, ended.last_seq, ended.generation) == (b"x", 4, 1)
    assert world.execs.get(two.key).status == "WORKER_LOST"
    assert world.sandboxes.get(key()).active_execs == 0
    world.check()
    assert world.sandboxes.mark_ready(world.sandboxes.get(key()).fence).status == "READY"


def test_a_release_under_way_goes_on_after_a_restart(world: World):
    route = world.started()
    queued = world.queued(route)
    world.sandboxes.begin_release(key(), None, "tester", "released")
    registered = world.restart(present=frozenset())
    assert (registered.kept, registered.lost) == (0, 0)
    releasing = world.sandboxes.get(key())
    assert (releasing.status, releasing.generation, releasing.worker_epoch) == ("RELEASING", 2, 2)
    world.check()
    assert not world.sandboxes.finish_release(releasing.fence), "a command still waits"
    world.execs.cancel(queued.key)
    assert world.sandboxes.finish_release(releasing.fence)
    assert world.resolve().workspace == "new"
    world.check()


def test_a_release_on_a_disk_that_is_gone_is_done(world: World):
    route = world.started()
    world.queued(route)
    world.sandboxes.begin_release(key(), None, "tester", "released")
    world.set_orphans_due()
    assert world.restart(root_id="other").lost == 0
    assert world.row(sandboxes).status == "RELEASED"
    assert world.resolve().workspace == "new"
    world.check()


def test_others_are_left_alone(world: World):
    world.register("w2")
    other = world.resolve("other")
    world.register("w1", isolation_level="strict")
    mine = world.ready()
    assert (other.worker_id, mine.worker_id) == ("w2", "w1")
    world.restart("w1")
    assert world.sandboxes.get(key("other")) == other
    world.check()


def test_many_restarts(world: World):
    route = world.started()
    world.queued(route)
    for epoch in range(2, 6):
        assert world.restart().epoch == epoch
        moved = world.sandboxes.get(key())
        assert (moved.generation, moved.worker_epoch, moved.workspace) == (epoch, epoch, "kept")
        world.check()
    assert world.exec("run").generation == 5


def test_a_new_range_of_uids_is_used_from_its_start(world: World):
    world.register()
    world.resolve()
    world.restart(uid_start=500_000, uid_end=500_009)
    assert 500_000 <= world.resolve("other").sandbox_uid <= 500_009
    world.check()


def test_capacity_may_shrink_below_what_is_held(world: World):
    world.register()
    for number in range(3):
        world.resolve(f"box-{number}")
    world.restart(capacity=2)
    assert world.row(workers).reserved == 3
    world.check()
