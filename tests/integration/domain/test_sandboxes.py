"""Every method of ``Sandboxes`` on both databases, with each error that its docstring names."""

from __future__ import annotations

import pytest

from sandloom.clock import MICROSECONDS
from sandloom.db.tables import operations, sandbox_history, sandboxes, workers
from sandloom.errors import (
    FilePathLocked,
    NoWorkerAvailable,
    OperationSeen,
    SandboxBusy,
    SandboxNotFound,
    SandboxSuspended,
    SandloomError,
    ScopeBusy,
    ScopeMismatch,
    StaleRoute,
    SuspendInProgress,
    WorkerLost,
)  # fmt: skip
from sandloom.sandboxes.states import SandboxStatus
from tests.integration.domain.world import PROFILE, World, key, request

# --- resolve ---


def test_a_new_sandbox_is_assigned_to_a_worker(world: World):
    world.register()
    route = world.resolve()
    assert (route.status, route.generation, route.workspace) == (SandboxStatus.ASSIGNED, 1, "new")
    assert (route.worker_id, route.worker_epoch, route.queue) == ("w1", 1, "sandloom.worker.w1")
    assert 200_000 <= route.sandbox_uid <= 200_999
    assert route.expires_us == route.last_active_us + 1800 * MICROSECONDS
    assert world.sandboxes.get(route.key) == route
    world.check()


def test_resolving_again_keeps_the_route_and_counts_as_activity(world: World):
    route = world.started()
    world.set(sandboxes, sandboxes.c.sandbox_id == "box", last_active_us=7)
    again = world.resolve()
    assert (again.generation, again.sandbox_uid, again.status) == (1, route.sandbox_uid, SandboxStatus.READY)
    assert world.sandboxes.get(key()).last_active_us >= route.created_us
    world.check()


def test_a_released_sandbox_gets_the_next_generation(world: World):
    old = world.started()
    world.released(old)
    new = world.resolve()
    assert (new.generation, new.status, new.workspace) == (2, SandboxStatus.ASSIGNED, "new")
    assert new.ready_us is None
    assert new.sandbox_uid != old.sandbox_uid, "a UID rests as long as others are free"
    world.check()


def test_the_same_id_of_another_scope_is_refused(world: World):
    world.started()
    with pytest.raises(ScopeMismatch):
        world.resolve(scope="other")
    world.released(world.sandboxes.get(key()))
    with pytest.raises(ScopeMismatch):
        world.resolve(scope="other")


def test_tenants_do_not_meet(world: World):
    mine = world.started()
    theirs = world.resolve(scope="other", tenant_id="theirs")
    assert theirs.sandbox_uid != mine.sandbox_uid
    assert world.sandboxes.list("theirs", None, None, None, 10, 0)[0] == [theirs]
    world.check()


def test_a_sandbox_that_is_being_released_is_busy(world: World):
    route = world.started()
    world.sandboxes.begin_release(route.key, None, "tester", "released")
    with pytest.raises(SandboxBusy):
        world.resolve()


@pytest.mark.parametrize(("status", "error"), [("SUSPENDING", SuspendInProgress), ("SUSPENDED", SandboxSuspended)])
def test_a_suspended_sandbox_says_so(world: World, status: str, error: type[SandloomError]):
    route = world.started()
    world.set_status(route.key, status)
    with pytest.raises(error):
        world.resolve()
    with pytest.raises(SandboxSuspended):
        world.sandboxes.current(route.key, 1)


def test_a_silent_owner_may_return_so_its_sandbox_stays_there(world: World):
    route = world.started()
    world.register("w2")
    world.set(workers, workers.c.worker_id == "w1", lease_expires_us=1)
    with pytest.raises(WorkerLost):
        world.resolve()
    with pytest.raises(WorkerLost):
        world.sandboxes.current(route.key, 1)
    assert world.fleet.renew("w1", 1, 600, {})
    assert world.resolve().worker_id == "w1"


@pytest.mark.parametrize(
    "values",
    [
        {"profile_id": "other"},
        {"declared_hash": "other"},
        {"environment": "prod"},
        {"drain_us": 1},
        {"short_of": "disk"},
        {"status": "STOPPED"},
        {"status": "GONE"},
        {"lease_expires_us": 1},
        {"reserved": 20},
    ],
)
def test_a_worker_that_does_not_fit_is_not_chosen(world: World, values: dict[str, object]):
    world.register()
    world.set(workers, workers.c.worker_id == "w1", **values)
    before = world.dump()
    with pytest.raises(NoWorkerAvailable) as refused:
        world.resolve()
    assert refused.value.retry_after_seconds == 5
    assert world.dump() == before


def test_no_worker_at_all(world: World):
    with pytest.raises(NoWorkerAvailable):
        world.resolve()


def test_stronger_isolation_is_preferred_then_emptier_workers(world: World):
    world.register("basic", isolation_level="basic")
    world.register("a", isolation_level="strict", capacity=2)
    world.register("b", isolation_level="strict", capacity=4)
    owners = [world.resolve(f"box-{n}").worker_id for n in range(7)]
    assert sorted(owners[:6]) == ["a", "a", "b", "b", "b", "b"]
    assert owners[6] == "basic"


def test_uids_stay_in_the_workers_range_and_come_round_again(world: World):
    world.register(uid_start=300, uid_end=302, capacity=9)
    routes = [world.resolve(f"box-{n}") for n in range(3)]
    assert {r.sandbox_uid for r in routes} == {300, 301, 302}
    with pytest.raises(NoWorkerAvailable, match="UID"):
        world.resolve("box-3")
    world.check()
    world.released(world.sandboxes.mark_ready(routes[1].fence))
    assert world.resolve("box-3").sandbox_uid == routes[1].sandbox_uid
    world.check()


# --- looking ---


def test_get_and_current_of_what_is_not_there(world: World):
    with pytest.raises(SandboxNotFound):
        world.sandboxes.get(key())
    with pytest.raises(SandboxNotFound):
        world.sandboxes.current(key(), 1)
    world.started()
    with pytest.raises(SandboxNotFound):
        world.sandboxes.get(key(tenant_id="theirs"))


def test_current_is_strict_about_the_generation_first(world: World):
    route = world.started()
    assert world.sandboxes.current(route.key, 1) == world.sandboxes.get(route.key)
    for generation in (0, 2):
        with pytest.raises(StaleRoute):
            world.sandboxes.current(route.key, generation)
    world.sandboxes.begin_release(route.key, 1, "tester", "released")
    with pytest.raises(StaleRoute, match="released"):
        world.sandboxes.current(route.key, 1)
    world.sandboxes.finish_release(route.fence)
    with pytest.raises(StaleRoute, match="released"):
        world.sandboxes.current(route.key, 1)


def test_list_filters_pages_and_counts(world: World):
    world.register()
    for number, name in enumerate(["a_b", "axb", "a%b", "zzz"]):
        world.resolve(name, scope=f"scope-{number % 2}")
        world.set(sandboxes, sandboxes.c.sandbox_id == name, created_us=number)
    world.sandboxes.mark_ready(world.sandboxes.get(key("zzz")).fence)

    def names(status=None, scope=None, search=None, limit=10, offset=0):
        routes, total = world.sandboxes.list("default", status, scope, search, limit, offset)
        return [r.key.sandbox_id for r in routes], total

    assert names() == (["zzz", "a%b", "axb", "a_b"], 4)
    assert names(limit=2, offset=1) == (["a%b", "axb"], 4)
    assert names(status="READY") == (["zzz"], 1)
    assert names(scope="scope-0") == (["a%b", "a_b"], 2)
    assert names(search="a_b") == (["a_b"], 1)
    assert names(search="%") == (["a%b"], 1)
    assert names(search="/") == ([], 0)


# --- release ---


def test_release_in_two_steps_gives_slot_and_uid_back_once(world: World):
    route = world.started()
    releasing = world.sandboxes.begin_release(route.key, 1, "tester", "released")
    assert releasing.status is SandboxStatus.RELEASING
    assert releasing.expires_us is None
    assert world.row(workers).reserved == 1
    assert world.row(sandboxes).held_uid == route.sandbox_uid
    assert world.sandboxes.begin_release(route.key, 1, "other", "other") == releasing
    assert world.sandboxes.finish_release(route.fence)
    assert not world.sandboxes.finish_release(route.fence)
    assert world.row(workers).reserved == 0
    assert world.row(sandboxes).held_uid is None
    assert world.sandboxes.begin_release(route.key, None, "other", "other").status is SandboxStatus.RELEASED
    history = world.row(sandbox_history)
    assert (history.released_by, history.release_reason) == ("tester", "released")
    world.check()


def test_release_of_another_generation_or_of_nothing(world: World):
    route = world.started()
    with pytest.raises(StaleRoute):
        world.sandboxes.begin_release(route.key, 2, "tester", "released")
    with pytest.raises(SandboxNotFound):
        world.sandboxes.begin_release(key("none"), None, "tester", "released")
    assert world.sandboxes.get(route.key).status is SandboxStatus.READY


def test_lives_are_counted_and_lifetimes_added(world: World):
    route = world.started()
    world.set(sandboxes, sandboxes.c.sandbox_id == "box", assigned_us=route.created_us - 10 * MICROSECONDS)
    world.restart()
    world.set(sandboxes, sandboxes.c.sandbox_id == "box", assigned_us=route.created_us - 5 * MICROSECONDS)
    world.released(route)
    first = world.row(sandboxes)
    assert first.total_lifetime_ms >= 15_000, "also what was lived before the worker's restart"
    world.released(world.ready())
    second = world.row(sandboxes)
    assert (first.lifecycle_count, second.lifecycle_count) == (1, 2)
    assert first.total_lifetime_ms <= second.total_lifetime_ms < first.total_lifetime_ms + 60_000


def test_history_keeps_long_names_within_its_columns(world: World):
    world.register()
    route = world.sandboxes.resolve("default", "box", "scope", PROFILE, "b" * 500)
    world.sandboxes.begin_release(route.key, None, "r" * 500, "why" * 100)
    row = world.row(sandbox_history)
    assert (row.created_by, row.released_by) == ("b" * 128, "r" * 128)


# --- the owner ---


def test_mark_ready_is_idempotent_and_tells_what_the_disk_showed(world: World):
    fence = world.started().fence
    ready_us = world.row(sandboxes).ready_us
    again = world.sandboxes.mark_ready(fence)
    assert (again.status, again.ready_us) == (SandboxStatus.READY, ready_us)
    world.restart()
    fence = world.sandboxes.get(key()).fence
    assert world.sandboxes.get(key()).workspace == "kept"
    assert world.sandboxes.mark_ready(fence, "lost").workspace == "lost"
    assert world.sandboxes.mark_ready(fence, "kept").workspace == "lost", "only the step from ASSIGNED decides"
    assert [row.ready_us is not None for row in world.rows(sandbox_history)] == [True, True]
    world.check()


def test_touch_counts_as_activity_and_an_operation_happens_once(world: World):
    route = world.started()
    world.set(sandboxes, sandboxes.c.sandbox_id == "box", last_active_us=7)
    world.sandboxes.touch(route.fence, "op")
    assert world.row(sandboxes).last_active_us > 7
    world.set(sandboxes, sandboxes.c.sandbox_id == "box", last_active_us=7)
    before = world.dump()
    with pytest.raises(OperationSeen):
        world.sandboxes.touch(route.fence, "op")
    assert world.dump() == before
    world.sandboxes.touch(route.fence, "other")
    world.sandboxes.touch(world.ready(tenant_id="theirs").fence, "op")
    assert len(world.rows(operations)) == 3


def test_touch_is_refused_while_a_lifecycle_command_has_the_sandbox(world: World):
    route = world.started()
    record = world.running(route)
    with pytest.raises(FilePathLocked):
        world.sandboxes.touch(route.fence, "op")
    assert world.rows(operations) == []
    world.finish(record)
    world.sandboxes.touch(route.fence, "op")
    world.running(route, "scoped", "tests")
    world.sandboxes.touch(route.fence)


def test_a_sandbox_that_the_service_holds_takes_nothing_until_it_is_let_go(world: World):
    route = world.started()
    world.sandboxes.hold(route.fence)
    for refused in (
        lambda: world.execs.admit(route.key, 1, request("e1", "scope")),
        lambda: world.execs.admit(route.key, 1, request("e2")),
        lambda: world.sandboxes.touch(route.fence),
        lambda: world.sandboxes.hold(route.fence),
    ):
        with pytest.raises((ScopeBusy, FilePathLocked, SandboxBusy)):
            refused()
    assert world.sandboxes.let_go(route.fence)
    assert not world.sandboxes.let_go(route.fence)
    world.execs.admit(route.key, 1, request("e1", "scope"))
    with pytest.raises(SandboxBusy):
        world.sandboxes.hold(route.fence)


def test_a_hold_ends_with_the_life_of_its_worker(world: World):
    route = world.started()
    world.sandboxes.hold(route.fence)
    world.restart()
    assert not world.sandboxes.let_go(route.fence)
    assert world.sandboxes.get(route.key).exclusive_exec_id is None
