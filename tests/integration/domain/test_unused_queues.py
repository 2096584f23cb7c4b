"""Which workers' queues nobody needs any more."""

from __future__ import annotations

from sandloom.db import Database
from sandloom.reclaim.policy import ReclaimPolicy
from sandloom.reclaim.queues import UnusedQueues
from tests.integration.domain.world import World


def unused(db: Database, after: str = "", batch_size: int = 100) -> list[tuple[str, int]]:
    return UnusedQueues(db, ReclaimPolicy(batch_size=batch_size)).after(after)


def test_a_dead_workers_queue_is_needed_until_its_quarantine_is_over_and_no_row_names_it(world: World) -> None:
    route = world.started()
    world.queued(route)
    world.set_orphans_due()
    assert unused(world.db) == []  # it was not declared lost: it may come back
    world.lose()
    assert unused(world.db) == []
    assert len(world.reclaim.end_lost_execs()) == 1
    assert unused(world.db) == []  # its sandbox waits for it
    assert world.reclaim.release_orphans() == 1
    assert unused(world.db) == [("w1", 1)]
    world.restart()
    assert unused(world.db) == []


def test_a_worker_that_was_lost_just_now_keeps_its_queue(world: World) -> None:
    world.register()
    world.lose()
    assert unused(world.db) == []


def test_a_worker_that_stopped_keeps_its_queue_while_its_sandboxes_sleep_on_its_disk(world: World) -> None:
    route = world.suspended()
    world.fleet.unregister("w1", 1)
    world.set_orphans_due()
    assert unused(world.db) == []
    world.released(route)
    assert unused(world.db) == [("w1", 1)]


def test_batches_go_by_id(world: World) -> None:
    for worker_id in ("w1", "w2", "w3", "w4"):
        world.register(worker_id)
        if worker_id != "w3":
            world.fleet.unregister(worker_id, 1)
    world.register("w2")
    world.fleet.unregister("w2", 2)
    world.set_orphans_due()
    assert unused(world.db, batch_size=2) == [("w1", 1), ("w2", 2)]
    assert unused(world.db, "w2", batch_size=2) == [("w4", 1)]
