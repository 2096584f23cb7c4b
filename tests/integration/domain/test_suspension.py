"""Suspend and resume over rows: the table of the contract, and who gets the sandbox back."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sandloom.db.tables import sandboxes, workers
from sandloom.errors import (
    DormantWorkspaceUnavailable,
    NoWorkerAvailable,
    SandboxNotFound,
    SandboxNotReady,
    SandboxSuspended,
    SandloomError,
    StaleGeneration,
    StaleRoute,
    SuspendBusy,
    SuspendInProgress,
)
from sandloom.sandboxes.records import Route
from tests.integration.domain.world import World, key


def status(world: World) -> str:
    return str(world.box(key()).status)


def reserved(world: World, worker_id: str = "w1") -> int:
    return next(int(row.reserved) for row in world.rows(workers) if row.worker_id == worker_id)


# --- suspend ---


def test_a_ready_sandbox_gives_its_slot_back_and_keeps_its_uid(world: World):
    route = world.suspended()
    box = world.box(route.key)
    assert (box.status, box.held_uid, reserved(world)) == ("SUSPENDED", route.sandbox_uid, 0)
    assert world.suspensions.begin(route.fence) is False
    world.check()


def running(world: World) -> None:
    world.running(world.started())


def waiting(world: World) -> None:
    world.queued(world.started())


def only_assigned(world: World) -> None:
    world.register()
    world.resolve()


def releasing(world: World) -> None:
    world.sandboxes.begin_release(world.started().key, None, "tester", "released")


def moved_on(world: World) -> None:
    world.started()
    world.restart()


@pytest.mark.parametrize(
    ("state", "error"),
    [
        (running, SuspendBusy), (waiting, SuspendBusy), (only_assigned, SandboxNotReady), (releasing, StaleGeneration),
        (moved_on, StaleGeneration), (lambda world: world.register(), SandboxNotFound),
    ],
)  # fmt: skip
def test_nothing_else_is_suspended(world: World, state: Callable[[World], None], error: type[SandloomError]):
    state(world)
    before = world.dump()
    with pytest.raises(error):
        world.suspensions.begin(world.fence1)
    assert world.dump() == before


def test_a_suspend_that_is_given_up_leaves_the_sandbox_ready(world: World):
    route = world.started()
    assert world.suspensions.begin(route.fence)
    with pytest.raises(SandboxSuspended):
        world.queued(route)
    with pytest.raises(StaleRoute):
        world.sandboxes.touch(route.fence)
    assert world.suspensions.abort(route.fence)
    assert not world.suspensions.abort(route.fence)
    assert not world.suspensions.finish(route.fence)
    world.running(route)
    world.check()


def test_an_idle_sandbox_that_is_used_again_is_not_suspended(world: World):
    route = world.started()
    with pytest.raises(SuspendBusy):
        world.suspensions.begin(route.fence, route.last_active_us - 1)
    assert world.suspensions.begin(route.fence, world.sandboxes.get(route.key).last_active_us)


def test_a_suspend_that_was_cut_short_is_found_and_goes_on(world: World):
    world.reclaim_policy(stalled_suspend_seconds=0)
    route = world.started()
    world.suspensions.begin(route.fence)
    world.set(sandboxes, sandboxes.c.sandbox_id == "box", status_us=0)
    assert [found.key for found in world.dormant.cut_short()] == [route.key]
    assert world.suspensions.begin(route.fence)
    assert world.suspensions.finish(route.fence)
    assert world.dormant.cut_short() == []


def test_a_suspend_that_a_restart_cut_short_never_happened(world: World):
    route = world.started()
    world.suspensions.begin(route.fence)
    assert world.restart().kept == 1
    assert (status(world), world.box(route.key).generation, world.box(route.key).workspace) == ("ASSIGNED", 2, "kept")
    assert not world.suspensions.finish(route.fence)
    world.check()


# --- resume ---


def test_it_wakes_where_it_slept_under_the_same_generation(world: World):
    route = world.suspended()
    world.register("w2", isolation_level="strict")
    woken, resumed = world.suspensions.begin_resume(route.key, "tester")
    assert (resumed, woken.worker_id, woken.generation, woken.status, woken.workspace) == (
        True, "w1", 1, "ASSIGNED", "kept",
    )  # fmt: skip
    assert reserved(world) == 1
    assert world.suspensions.begin_resume(route.key, "tester")[1] is False
    assert world.sandboxes.mark_ready(woken.fence).status == "READY"
    world.check()


def test_it_wakes_after_a_restart_under_the_next_generation(world: World):
    route = world.suspended()
    world.restart()
    assert (status(world), reserved(world)) == ("SUSPENDED", 0)
    woken, _ = world.suspensions.begin_resume(route.key, "tester")
    assert (woken.worker_id, woken.worker_epoch, woken.generation) == ("w1", 2, 2)
    assert world.sandboxes.mark_ready(woken.fence).workspace == "kept"
    assert [entry["generation"] for entry in world.sandboxes.audit(route.key)["history"]] == [2, 1]
    world.check()


def test_another_profile_strands_nobody(world: World):
    route = world.suspended()
    world.restart(declared_hash="changed", effective_hash="changed")
    woken, _ = world.suspensions.begin_resume(route.key, "tester")
    assert (woken.worker_id, woken.profile_hash) == ("w1", "changed")


def test_a_full_owner_says_so_and_the_sandbox_sleeps_on(world: World):
    route = world.suspended(capacity=1)
    world.ready("other")
    with pytest.raises(NoWorkerAvailable):
        world.suspensions.begin_resume(route.key, "tester")
    assert status(world) == "SUSPENDED"
    world.check()


def test_an_owner_that_is_not_there_says_so(world: World):
    route = world.suspended()
    world.register("w2")
    world.lose()
    with pytest.raises(DormantWorkspaceUnavailable):
        world.suspensions.begin_resume(route.key, "tester")
    assert status(world) == "SUSPENDED"


def test_over_a_shared_root_it_wakes_on_another_worker(world: World):
    shared = {"storage_mode": "shared", "root_id": "one"}
    route = world.suspended(**shared, capacity=1)
    world.ready("other")
    world.register("w2", **shared, uid_start=500, uid_end=600)
    world.register("w3", root_id="one")
    woken, _ = world.suspensions.begin_resume(route.key, "tester")
    assert (woken.worker_id, woken.generation, woken.workspace) == ("w2", 2, "kept")
    assert 500 <= woken.sandbox_uid <= 600
    assert reserved(world, "w2") == 1
    world.check()


def test_a_resume_that_fails_sleeps_again(world: World):
    route = world.suspended()
    woken, _ = world.suspensions.begin_resume(route.key, "tester")
    world.set(sandboxes, sandboxes.c.sandbox_id == "box", assigned_us=0)
    assert world.suspensions.fall_back(woken.fence)
    assert (status(world), reserved(world)) == ("SUSPENDED", 0)
    assert not world.suspensions.fall_back(woken.fence)
    world.check()


def test_only_a_resume_falls_back(world: World):
    world.register()
    assert not world.suspensions.fall_back(world.resolve().fence)
    assert status(world) == "ASSIGNED"


def test_a_command_that_waits_keeps_a_sandbox_awake(world: World):
    route = world.suspended()
    world.suspensions.begin_resume(route.key, "tester")
    world.set(sandboxes, sandboxes.c.sandbox_id == "box", assigned_us=0, active_execs=1)
    assert not world.suspensions.fall_back(route.fence)


@pytest.mark.parametrize(
    ("state", "error"),
    [
        (lambda world: world.suspensions.begin(world.started().fence), SuspendInProgress), (releasing, StaleRoute),
        (lambda world: world.released(world.started()), StaleRoute), (lambda world: None, SandboxNotFound),
    ],
)  # fmt: skip
def test_nothing_else_is_resumed(world: World, state: Callable[[World], None], error: type[SandloomError]):
    state(world)
    with pytest.raises(error):
        world.suspensions.begin_resume(key(), "tester")


# --- the end ---


def test_a_suspended_sandbox_is_released_by_its_worker(world: World):
    released = world.released(world.suspended())
    assert (released.status, reserved(world)) == ("RELEASED", 0)
    world.check()


def test_a_worker_without_the_files_says_that_they_are_lost(world: World):
    route = world.suspended()
    world.restart(present=frozenset())
    assert (status(world), world.box(route.key).workspace) == ("RELEASED", "lost")
    world.check()


def test_what_sleeps_too_long_is_released(world: World):
    world.reclaim_policy(suspended_retention_seconds=60)
    route = world.suspended()
    assert world.dormant.begin_releases() == []
    world.set(sandboxes, sandboxes.c.sandbox_id == "box", status_us=0)
    assert [found.key for found in world.dormant.begin_releases()] == [route.key]
    assert (status(world), reserved(world)) == ("RELEASING", 1)
    assert world.dormant.begin_releases() == []
    assert world.sandboxes.audit(route.key)["last_release_reason"] == "suspended_too_long"
    world.check()


def test_a_retention_of_nothing_keeps_for_ever(world: World):
    world.reclaim_policy(suspended_retention_seconds=0)
    world.suspended()
    world.set(sandboxes, sandboxes.c.sandbox_id == "box", status_us=0)
    assert world.dormant.begin_releases() == []


def test_idle_sandboxes_are_suspended_where_that_is_wanted(world: World):
    def idle(route: Route) -> list[Route]:
        world.forget_activity()
        assert world.reclaim.begin_idle_releases() == []
        return world.dormant.due()

    world.reclaim_policy(idle_action="suspend")
    route = world.started()
    assert world.dormant.due() == []
    (found,) = idle(route)
    assert (found.key, found.last_active_us) == (route.key, 0)
    world.queued(route)
    assert idle(route) == []


def test_what_was_never_used_is_released_all_the_same(world: World):
    world.reclaim_policy(idle_action="suspend")
    world.register()
    route = world.resolve()
    world.forget_activity()
    assert world.dormant.due() == []
    assert [found.key for found in world.reclaim.begin_idle_releases()] == [route.key]
