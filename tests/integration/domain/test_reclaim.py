"""Maintenance over rows. Everything is called twice: the second call finds nothing to do."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from sandloom.clock import MICROSECONDS
from sandloom.db.clock import now_us
from sandloom.db.tables import execs, sandbox_history, sandboxes, workers
from sandloom.errors import NoWorkerAvailable, WorkerLost
from sandloom.reclaim.policy import ReclaimPolicy
from tests.integration.domain.world import World, key


def twice(call: Callable[[], Any]) -> Any:
    """The first answer; the second one must be empty."""
    first = call()
    assert not call(), "it did the same again"
    return first


def test_a_lease_that_lapsed_is_declared_lost_once(world: World):
    world.register()
    assert twice(partial(world.reclaim.declare_lost, world.lease())) is True
    worker = world.fleet.get("w1")
    assert worker is not None
    assert (worker.status, worker.live) == ("GONE", False)
    assert not world.fleet.leases()
    assert not world.fleet.list_workers()
    assert not world.fleet.renew("w1", 1, 600, {})
    with pytest.raises(NoWorkerAvailable):
        world.resolve()


def test_a_lease_that_was_renewed_or_taken_over_is_not_declared_lost(world: World):
    world.register()
    seen = world.lease()
    assert world.fleet.renew("w1", 1, 600, {"running": 1})
    assert not world.reclaim.declare_lost(seen)
    seen = world.lease()
    world.restart()
    assert not world.reclaim.declare_lost(seen)
    worker = world.fleet.get("w1")
    assert worker is not None
    assert worker.live


def test_leases(world: World):
    world.register()
    assert world.fleet.get("none") is None
    assert not world.fleet.renew("none", 1, 600, {})
    world.fleet.unregister("w1", 1)
    worker = world.fleet.get("w1")
    assert worker is not None
    assert (worker.status, worker.live) == ("STOPPED", False)
    assert not world.fleet.renew("w1", 1, 600, {})
    assert [w.worker_id for w in world.fleet.list_workers()] == ["w1"]
    assert world.lease().renewals == 1, "a stopped worker is watched like a silent one: its commands wait"
    world.lose()
    world.fleet.unregister("w1", 1)
    assert world.row(workers).status == "GONE"


def test_commands_of_a_lost_worker_are_ended(world: World):
    route = world.started()
    queued, running = world.queued(route, "queued", "a"), world.running(route, "running", "b")
    assert world.reclaim.end_lost_execs() == []
    world.lose()
    ended = twice(world.reclaim.end_lost_execs)
    assert sorted(ended) == sorted([(queued.key, 2), (running.key, 3)])
    for record in (queued, running):
        found = world.execs.get(record.key)
        assert (found.status, found.error) == ("WORKER_LOST", "SANDBOX_WORKER_LOST")
    world.check()
    with pytest.raises(WorkerLost):
        world.resolve()


def test_sandboxes_of_a_lost_worker_are_released_after_the_grace(world: World):
    route = world.started()
    world.queued(route)
    world.lose()
    assert world.reclaim.release_orphans() == 0
    world.set_orphans_due()
    assert twice(world.reclaim.release_orphans) == 1
    assert world.exec("run").status == "WORKER_LOST"
    box = world.row(sandboxes)
    assert (box.status, box.workspace, world.row(workers).reserved) == ("RELEASED", "lost", 0)
    world.check()
    world.register("w2")
    again = world.resolve()
    assert (again.generation, again.worker_id, again.workspace) == (2, "w2", "lost")
    assert world.rows(sandbox_history)[0].release_reason == "worker_lost"
    world.check()


def test_uids_of_a_lost_worker_rest_until_it_returns(world: World):
    route = world.started(root_id="shared", uid_start=700, uid_end=702)
    world.lose()
    world.set_orphans_due()
    assert world.reclaim.release_orphans() == 1
    world.register("w2", root_id="shared", uid_start=700, uid_end=702)
    others = {world.resolve(f"box-{n}").sandbox_uid for n in range(2)}
    assert route.sandbox_uid not in others
    with pytest.raises(NoWorkerAvailable, match="UID"):
        world.resolve("box-3")
    world.register("w1", root_id="shared", uid_start=700, uid_end=702, capacity=0)
    assert world.resolve("box-3").sandbox_uid == route.sandbox_uid
    world.check()


def test_slots_that_drifted_are_recounted(world: World):
    world.register("w2", capacity=0)
    route = world.started()
    world.released(world.ready("other"))
    assert world.reclaim.recount_slots() == []
    for wrong in (0, 7):
        world.set(workers, workers.c.worker_id == "w1", reserved=wrong)
        assert twice(world.reclaim.recount_slots) == [("w1", wrong, 1)]
        world.check()
    world.released(route)
    assert world.reclaim.recount_slots() == []


def test_a_release_that_the_lost_worker_did_not_finish_is_done(world: World):
    route = world.started()
    world.sandboxes.begin_release(route.key, None, "tester", "released")
    world.lose()
    world.set_orphans_due()
    assert twice(world.reclaim.release_orphans) == 1
    world.register("w2")
    assert world.resolve().workspace == "new", "whoever released it does not miss it"
    world.check()


def test_a_lost_worker_that_returns_in_time_keeps_its_sandboxes(world: World):
    world.started()
    world.lose()
    assert world.register(present=frozenset({key()})).kept == 1
    world.set(workers, workers.c.worker_id == "w1", lease_expires_us=1)
    assert world.reclaim.release_orphans() == 0
    assert world.sandboxes.get(key()).workspace == "kept"


def test_idle_sandboxes_are_released_and_busy_ones_are_not(world: World):
    world.register()
    world.resolve("assigned")
    world.ready("idle")
    world.queued(world.ready("busy"))
    world.forget_activity()
    world.ready("fresh")
    routes = twice(world.reclaim.begin_idle_releases)
    assert sorted((r.key.sandbox_id, r.queue) for r in routes) == [
        ("assigned", "sandloom.worker.w1"),
        ("idle", "sandloom.worker.w1"),
    ]
    assert world.sandboxes.get(key("idle")).status == "RELEASING"
    assert {row.release_reason for row in world.rows(sandbox_history) if row.released_us} == {"idle"}
    world.check()


def test_a_silent_workers_idle_sandboxes_are_left_to_its_lease(world: World):
    world.started()
    world.forget_activity()
    world.set_orphans_due()
    assert world.reclaim.begin_idle_releases() == []


def test_stalled_releases_are_told_again_ever_less_often(world: World):
    route = world.started()
    world.sandboxes.begin_release(route.key, None, "tester", "released")
    assert world.reclaim.stalled_releases() == []

    def told_at(age_seconds: int) -> bool:
        status_us = now_us() - age_seconds * MICROSECONDS
        world.set(sandboxes, sandboxes.c.sandbox_id == "box", status_us=status_us)
        return [r.key for r in world.reclaim.stalled_releases()] == [route.key]

    ages = (40, 340, 370, 490, 610, 970, 1090, 3610, 3730, 5000, 7210)
    assert [age for age in ages if told_at(age)] == [40, 340, 490, 970, 3610, 7210]
    assert told_at(40)
    world.sandboxes.finish_release(route.fence)
    assert world.reclaim.stalled_releases() == []


def test_what_waits_too_long_is_ended_and_what_runs_is_not(world: World):
    route = world.started()
    old, running = world.queued(route, "old", "a"), world.running(route, "running", "b")
    world.set(execs, execs.c.exec_id.is_not(None), queued_us=old.queued_us - 3601 * MICROSECONDS)
    young = world.queued(route, "young", "c")
    assert twice(world.reclaim.end_queue_timeouts) == [(old.key, 2)]
    ended = world.execs.get(old.key)
    assert (ended.status, ended.reason, ended.error) == ("TIMED_OUT", "queue_timeout", "SANDBOX_QUEUE_TIMEOUT")
    assert world.execs.get(young.key).status == "QUEUED"
    assert world.execs.get(running.key).status == "RUNNING"
    world.check()


def test_doorbells_are_rung_again_ever_later(world: World):
    route = world.started()
    record = world.queued(route)
    world.running(world.ready("other"))
    assert world.reclaim.due_rings() == [], "the first doorbell has only just gone out"
    delays = []
    for _ in range(8):
        world.set(execs, execs.c.exec_id == "run", ring_us=0)
        before_us = world.now_us()
        assert twice(world.reclaim.due_rings) == [(route.queue, record.key, 1)]
        delays.append((world.rows(execs)[0].ring_us - before_us) / MICROSECONDS)
    assert [round(delay / 5) * 5 for delay in delays] == [10, 20, 40, 80, 160, 300, 300, 300]
    world.set_orphans_due()
    world.set(execs, execs.c.exec_id == "run", ring_us=0)
    assert world.reclaim.due_rings() == [], "nobody would hear it"


def test_batches_are_bounded(db):
    world = World(db, reclaim=ReclaimPolicy(batch_size=2))
    world.register()
    for number in range(3):
        world.queued(world.ready(f"box-{number}"), f"run-{number}")
    world.set(execs, execs.c.exec_id.is_not(None), ring_us=0, queued_us=1)
    assert [len(world.reclaim.due_rings()) for _ in range(3)] == [2, 1, 0]
    assert [len(world.reclaim.end_queue_timeouts()) for _ in range(3)] == [2, 1, 0]
    world.forget_activity()
    assert [len(world.reclaim.begin_idle_releases()) for _ in range(3)] == [2, 1, 0]
    world.lose()
    world.set_orphans_due()
    assert [world.reclaim.release_orphans() for _ in range(3)] == [2, 1, 0]
    world.check()
