"""Suspended sandboxes that have a snapshot: who may restore them, and when it is not needed any more."""

from __future__ import annotations

from typing import Any

import pytest

from sandloom.db.tables import sandboxes, workers
from sandloom.errors import NoWorkerAvailable
from tests.integration.domain.world import World, key


def box(world: World) -> Any:
    return world.box(key())


def test_it_wakes_where_it_slept_while_that_worker_lives(world: World):
    world.suspended("snap")
    world.register("w2", isolation_level="strict")
    woken, _ = world.suspensions.begin_resume(key(), "tester")
    assert (woken.worker_id, woken.generation, woken.workspace) == ("w1", 1, "kept")
    assert woken.ready_us is not None


def test_without_its_worker_it_is_restored_elsewhere(world: World):
    world.suspended("snap")
    world.register("w2")
    world.set_orphans_due()
    world.register("w3")
    woken, resumed = world.suspensions.begin_resume(key(), "tester")
    assert resumed
    assert (woken.worker_id, woken.generation, woken.workspace, woken.root_id) == ("w3", 2, "restored", "root-w3")
    assert (woken.snapshot, woken.ready_us) == ("snap", None)
    assert world.sandboxes.mark_ready(woken.fence).workspace == "restored"
    world.check()


def test_without_a_worker_of_the_profile_it_sleeps_on(world: World):
    world.suspended("snap")
    world.set_orphans_due()
    world.register("w2", declared_hash="other")
    with pytest.raises(NoWorkerAvailable):
        world.suspensions.begin_resume(key(), "tester")
    assert box(world).status == "SUSPENDED"


def test_a_dropped_copy_frees_the_uid_and_is_restored_anywhere(world: World):
    route = world.suspended("snap")
    assert [found.key for found in world.suspensions.copies("w1")] == [key()]
    assert not world.suspensions.drop_copy(route.fence, "another")
    assert world.suspensions.drop_copy(route.fence, "snap")
    assert not world.suspensions.drop_copy(route.fence, "snap")
    assert (box(world).held_uid, world.suspensions.copies("w1")) == (None, [])
    woken, _ = world.suspensions.begin_resume(key(), "tester")
    assert (woken.worker_id, woken.generation, woken.workspace) == ("w1", 2, "restored")
    world.check()


def test_the_only_copy_is_no_candidate(world: World):
    route = world.suspended()
    assert world.suspensions.copies("w1") == []
    assert not world.suspensions.drop_copy(route.fence, "snap")


def test_a_worker_that_lost_its_disk_leaves_the_snapshot(world: World):
    world.suspended("snap")
    world.restart(present=frozenset())
    assert (box(world).status, box(world).held_uid) == ("SUSPENDED", None)
    assert world.suspensions.begin_resume(key(), "tester")[0].workspace == "restored"
    world.check()


def test_a_restore_that_fails_sleeps_on_in_the_snapshot(world: World):
    route = world.suspended("snap")
    world.suspensions.drop_copy(route.fence, "snap")
    woken, _ = world.suspensions.begin_resume(key(), "tester")
    world.set(sandboxes, sandboxes.c.sandbox_id == "box", assigned_us=0)
    assert world.suspensions.fall_back(woken.fence)
    assert (box(world).status, box(world).held_uid, box(world).snapshot) == ("SUSPENDED", None, "snap")
    world.check()


def test_a_restore_that_a_restart_cut_short_is_done_again(world: World):
    route = world.suspended("snap")
    world.suspensions.drop_copy(route.fence, "snap")
    world.suspensions.begin_resume(key(), "tester")
    world.restart(present=frozenset())
    assert (box(world).status, box(world).workspace, box(world).ready_us) == ("ASSIGNED", "restored", None)
    world.check()


def test_a_restore_whose_worker_is_lost_sleeps_on(world: World):
    route = world.suspended("snap")
    world.suspensions.drop_copy(route.fence, "snap")
    world.suspensions.begin_resume(key(), "tester")
    world.lose()
    world.set_orphans_due()
    assert world.reclaim.release_orphans() == 1
    assert (box(world).status, box(world).held_uid) == ("SUSPENDED", None)
    world.register("w2")
    assert world.suspensions.begin_resume(key(), "tester")[0].worker_id == "w2"
    world.check()


def test_what_was_to_be_restored_on_a_disk_that_went_sleeps_on_in_the_store(world: World):
    route = world.suspended("snap")
    world.suspensions.drop_copy(route.fence, "snap")
    world.register("w2", capacity=100)
    world.set(workers, workers.c.worker_id == "w1", drain_us=1)
    assert world.suspensions.begin_resume(key(), "tester")[0].worker_id == "w2"
    world.lose("w2")
    assert world.register("w2", root_id="another disk").lost == 0
    assert (box(world).status, box(world).held_uid) == ("SUSPENDED", None)
    again, _ = world.suspensions.begin_resume(key(), "tester")
    assert (again.worker_id, again.workspace, again.snapshot) == ("w2", "restored", "snap")
    world.check()


def test_what_is_nowhere_but_in_the_store_is_released_at_once(world: World):
    route = world.suspended("snap")
    world.suspensions.drop_copy(route.fence, "snap")
    assert world.sandboxes.begin_release(key(), None, "tester", "released").status == "RELEASED"
    assert box(world).status == "RELEASED"
    world.check()


def test_what_is_nowhere_but_in_the_store_expires_too(world: World):
    route = world.suspended("snap")
    world.suspensions.drop_copy(route.fence, "snap")
    world.set(sandboxes, sandboxes.c.sandbox_id == "box", status_us=0)
    assert len(world.dormant.begin_releases()) == 1
    assert box(world).status == "RELEASED"
    world.check()


def test_a_snapshot_that_was_only_begun_is_unneeded_once_its_suspend_came_to_nothing(world: World):
    route = world.started()
    assert not world.suspensions.announce(route.fence, "begun")
    world.suspensions.begin(route.fence)
    assert world.suspensions.announce(route.fence, "begun")
    assert world.dormant.unneeded_snapshots() == []
    world.lose()
    world.restart()
    assert not world.suspensions.announce(route.fence, "late")
    again = world.sandboxes.mark_ready(world.sandboxes.get(key()).fence)
    assert again.workspace == "kept"
    (found,) = world.dormant.unneeded_snapshots()
    assert found.snapshot == "begun"
    world.check()


def test_a_snapshot_is_unneeded_once_its_sandbox_is_awake_or_gone(world: World):
    world.suspended("snap")
    assert world.dormant.unneeded_snapshots() == []
    woken, _ = world.suspensions.begin_resume(key(), "tester")
    assert world.dormant.unneeded_snapshots() == []
    world.sandboxes.mark_ready(woken.fence)
    (found,) = world.dormant.unneeded_snapshots()
    assert found.snapshot == "snap"
    assert world.suspensions.begin(woken.fence)
    assert not world.dormant.forget_snapshot(found)
    world.suspensions.finish(woken.fence, "snap-2")
    world.released(woken)
    assert not world.dormant.forget_snapshot(found)
    (found,) = world.dormant.unneeded_snapshots()
    assert world.dormant.forget_snapshot(found)
    assert world.dormant.unneeded_snapshots() == []
