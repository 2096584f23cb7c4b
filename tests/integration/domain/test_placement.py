"""Which worker gets a sandbox, and what keeps a worker from getting any."""

from __future__ import annotations

from collections import Counter
from functools import partial

import pytest

from sandloom.db.tables import sandboxes, workers
from sandloom.errors import DormantWorkspaceUnavailable, NoWorkerAvailable, WorkerNotFound
from sandloom.sandboxes.records import Route
from sandloom.sandboxes.service import Sandboxes, SandboxPolicy
from sandloom.sandboxes.staying import Staying, staying
from tests.integration.domain.races import together
from tests.integration.domain.world import HASH, PROFILE, TENANT, World, key

SHARED = {"storage_mode": "shared", "root_id": "one"}


def test_a_burst_over_two_empty_workers_spreads_and_the_65th_is_refused(world: World):
    for name in ("w1", "w2"):
        world.register(name, capacity=32)
    first = together([partial(world.resolve, f"box-{n}") for n in range(32)])
    spread = Counter(route.worker_id for route in first)
    assert spread.total() == 32
    assert abs(spread["w1"] - 16) <= 2, spread

    more = together([partial(world.resolve, f"box-{n}") for n in range(32, 64)])
    assert Counter(route.worker_id for route in [*first, *more]) == {"w1": 32, "w2": 32}
    with pytest.raises(NoWorkerAvailable) as refused:
        world.resolve("box-64")
    assert (refused.value.status, refused.value.retry_after_seconds) == (503, 5)
    world.check()


def test_equal_workers_are_told_apart_by_their_load_and_a_wrong_hint_changes_nothing_else(world: World):
    hints = {"w1": 0.9, "w2": 0.1, "w3": 0.5}
    busy = Sandboxes(world.db, SandboxPolicy(HASH), lambda worker_ids: hints)
    for name in ("w1", "w2", "w3"):
        world.register(name, capacity=2)

    def resolve(number: int) -> Route:
        return busy.resolve(TENANT, f"box-{number}", "scope", PROFILE, "tester")

    assert [resolve(n).worker_id for n in range(6)] == ["w2", "w3", "w1"] * 2
    with pytest.raises(NoWorkerAvailable):
        resolve(6)


def test_workers_of_other_environments_are_not_chosen_and_those_that_do_not_say_are(world: World):
    world.register("w1", environment="prod")
    with pytest.raises(NoWorkerAvailable):
        world.resolve()
    world.set(workers, workers.c.worker_id == "w1", environment=None)
    assert world.resolve().worker_id == "w1"


def test_a_drain_lasts_until_it_is_ended(world: World):
    world.started()
    since = world.fleet.drain("w1").drain_us
    assert since is not None
    drained = world.fleet.drain("w1")
    assert (drained.status, drained.drain_us, drained.live) == ("DRAINING", since, True)
    with pytest.raises(NoWorkerAvailable):
        world.resolve("other")
    assert world.resolve().worker_id == "w1", "what is there goes on"
    world.restart()
    assert world.fleet.is_draining("w1")
    with pytest.raises(NoWorkerAvailable):
        world.resolve("other")
    assert world.fleet.undrain("w1").status == "ACTIVE"
    assert world.resolve("other").worker_id == "w1"


def test_only_a_worker_that_registered_once_is_drained(world: World):
    for call in (world.fleet.drain, world.fleet.undrain):
        with pytest.raises(WorkerNotFound):
            call("nobody")
    world.register()
    world.lose()
    assert world.fleet.drain("w1").status == "GONE"


def test_a_worker_that_lacks_room_says_so_with_each_renewal(world: World):
    world.register(short_of="inodes")
    with pytest.raises(NoWorkerAvailable):
        world.resolve()
    assert world.fleet.renew("w1", 1, 600, {}, "disk")
    worker = world.fleet.get("w1")
    assert worker is not None
    assert (worker.status, worker.short_of) == ("DRAINING", "disk")
    assert world.fleet.renew("w1", 1, 600, {})
    assert world.resolve().worker_id == "w1"


def test_what_stays_on_a_worker_is_counted(world: World):
    world.register(capacity=20)
    world.running(world.ready("runs"))
    world.ready("quiet")
    world.resolve("assigned")
    asleep = world.ready("asleep")
    world.suspensions.begin(asleep.fence)
    world.suspensions.finish(asleep.fence)
    world.released(world.ready("gone"))
    assert staying(world.db, ["w1", "w2"]) == {"w1": Staying(1, 2, 1), "w2": Staying()}
    world.loose.announce(asleep.key, "snap")
    assert world.suspensions.keep(asleep.fence, "snap")
    assert not world.suspensions.keep(asleep.fence, "snap-2")
    assert world.suspensions.drop_copy(asleep.fence, "snap")
    assert staying(world.db, ["w1"])["w1"] == Staying(1, 2, 0)
    assert {route.key.sandbox_id for route in world.suspensions.staying("w1")} == {"runs", "quiet", "assigned"}


# --- where what sleeps on a draining worker wakes ---


def test_the_only_copy_wakes_where_it_is(world: World):
    route = world.suspended()
    world.register("w2")
    world.fleet.drain("w1")
    with pytest.raises(NoWorkerAvailable):
        world.suspensions.begin_resume(route.key, "drain", elsewhere=True)
    woken, _ = world.suspensions.begin_resume(route.key, "tester")
    assert (woken.worker_id, woken.generation, woken.workspace) == ("w1", 1, "kept")
    world.check()


def test_nothing_wakes_on_a_worker_that_is_about_to_end(world: World):
    route = world.suspended()
    world.fleet.renew("w1", 1, 600, {}, "stopping")
    with pytest.raises(NoWorkerAvailable):
        world.suspensions.begin_resume(route.key, "tester")


def test_what_only_the_store_has_wakes_elsewhere(world: World):
    route = world.suspended("snap")
    world.fleet.drain("w1")
    world.suspensions.drop_copy(route.fence, "snap")
    with pytest.raises(NoWorkerAvailable):
        world.suspensions.begin_resume(route.key, "tester")
    world.register("w2")
    woken, _ = world.suspensions.begin_resume(route.key, "tester")
    assert (woken.worker_id, woken.generation, woken.workspace) == ("w2", 2, "restored")
    world.check()


def test_over_a_shared_root_it_moves_to_a_neighbour(world: World):
    route = world.suspended(**SHARED)
    world.register("w2", **SHARED, uid_start=500, uid_end=600)
    world.fleet.drain("w1")
    moved, _ = world.suspensions.begin_resume(route.key, "drain", elsewhere=True)
    assert (moved.worker_id, moved.generation, moved.workspace) == ("w2", 2, "kept")
    assert 500 <= moved.sandbox_uid <= 600
    world.check()


# --- workers that do not return ---


def test_over_a_shared_root_a_sandbox_outlives_its_worker(world: World):
    route = world.started(**SHARED)
    run = world.running(route)
    world.lose()
    world.set_orphans_due()
    assert [ended.exec_id for ended, _ in world.reclaim.end_lost_execs()] == [run.key.exec_id]
    assert world.reclaim.release_orphans() == 1
    assert world.reclaim.release_orphans() == 0
    world.check()
    with pytest.raises(DormantWorkspaceUnavailable):
        world.suspensions.begin_resume(route.key, "tester")
    world.register("w2", **SHARED, uid_start=500, uid_end=600)
    woken, _ = world.suspensions.begin_resume(route.key, "tester")
    assert (woken.worker_id, woken.generation, woken.workspace) == ("w2", 2, "kept")
    world.restart("w1", **SHARED)
    assert world.sandboxes.mark_ready(woken.fence).worker_id == "w2"
    world.check()


def test_over_a_shared_root_a_worker_that_returns_finds_it_asleep(world: World):
    route = world.started(**SHARED)
    world.lose()
    world.set_orphans_due()
    world.reclaim.release_orphans()
    world.restart("w1", **SHARED)
    woken, _ = world.suspensions.begin_resume(route.key, "tester")
    assert (woken.worker_id, woken.worker_epoch, woken.generation, woken.workspace) == ("w1", 2, 2, "kept")
    world.check()


def test_what_never_was_ready_is_given_up_also_over_a_shared_root(world: World):
    world.register(**SHARED)
    world.resolve()
    world.lose()
    world.set_orphans_due()
    world.reclaim.release_orphans()
    assert world.box(key()).status == "RELEASED"
    world.check()


# --- a worker that serves something else than before ---


def test_a_change_of_profile_is_a_new_generation_and_keeps_the_files(world: World):
    route = world.started()
    world.restart(declared_hash="changed", effective_hash="changed too")
    again = world.sandboxes.get(route.key)
    assert (again.generation, again.workspace, again.profile_hash) == (2, "kept", "changed too")
    with pytest.raises(NoWorkerAvailable):
        world.resolve("other")
    assert world.resolve().generation == 2
    world.released(world.sandboxes.mark_ready(again.fence))
    with pytest.raises(NoWorkerAvailable):
        world.resolve()
    world.register("w2")
    moved = world.resolve()
    assert (moved.worker_id, moved.generation, moved.workspace, moved.profile_hash) == ("w2", 3, "new", HASH)
    assert [row.generation for row in world.rows(sandboxes)] == [3]
