"""A restored backup: nothing that it holds as open runs again, and no route from before is current."""

from __future__ import annotations

import pytest

from sandloom.db.tables import sandboxes, workers
from sandloom.errors import StaleRoute, WorkerLost
from sandloom.fleet.records import WorkerStatus
from sandloom.reclaim.fence import STEPS, Fenced, fence
from tests.integration.domain.world import World, key, request


@pytest.fixture
def restored(world: World) -> World:
    """One command runs and one waits in one sandbox; another one is released."""
    route = world.started()
    world.running(route, "running", "a")
    world.queued(route, "queued", "b")
    world.released(world.ready("old"))
    return world


def test_what_was_open_has_ended_and_is_never_claimed(restored: World):
    queued = restored.exec("queued")
    assert fence(restored.db) == Fenced(execs=2, sandboxes=2, workers=1)
    restored.check()
    for name in ("running", "queued"):
        record = restored.exec(name)
        assert (record.status, record.error) == ("WORKER_LOST", "SANDBOX_WORKER_LOST")
        assert "backup" in (record.detail or "")
    assert restored.claim(queued) is None
    assert restored.reclaim.due_rings() == []
    again, _, created = restored.execs.admit(key(), 1, request("queued", "b"))
    assert (again.status, created) == ("WORKER_LOST", False)


def test_routes_and_epochs_from_before_and_from_after_the_backup_are_stale(restored: World):
    fence(restored.db)
    for generation in (1, 2, 50):
        with pytest.raises(StaleRoute):
            restored.sandboxes.current(key(), generation)
    assert not restored.fleet.renew("w1", 1, 600, {})
    assert not restored.fleet.renew("w1", 2, 600, {})
    assert restored.row(workers).epoch == 1 + STEPS
    assert {row.generation for row in restored.rows(sandboxes)} == {1 + STEPS}


def test_a_sandbox_goes_on_when_its_worker_starts_again(restored: World):
    restored.forget_activity()
    fence(restored.db)
    with pytest.raises(WorkerLost):
        restored.resolve()
    assert restored.register(present=frozenset({key()})).kept == 1
    assert restored.reclaim.begin_idle_releases() == []
    route = restored.ready()
    assert (route.generation, route.worker_epoch, route.workspace) == (2 + STEPS, 2 + STEPS, "kept")
    assert restored.finish(restored.running(route, "new"))
    assert restored.ready("old").generation == 2 + STEPS
    restored.check()
    history = restored.sandboxes.audit(key())["history"]
    assert [(entry["generation"], entry["release_reason"]) for entry in history] == [
        (2 + STEPS, None), (1 + STEPS, "worker_restarted"), (1, "backup_restored"),
    ]  # fmt: skip


def test_a_worker_that_was_lost_stays_lost(restored: World):
    restored.lose()
    fence(restored.db)
    assert restored.row(workers).status == WorkerStatus.GONE
    restored.set_orphans_due()
    assert restored.reclaim.release_orphans() == 1
    restored.check()


def test_it_can_be_repeated(restored: World):
    fence(restored.db)
    assert fence(restored.db).execs == 0
    assert restored.box(key()).generation == 1 + 2 * STEPS
    restored.check()
