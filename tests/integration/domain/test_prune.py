"""What is past its retention goes, in batches, and nothing else; no table grows without end."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sandloom.clock import MICROSECONDS
from sandloom.db import tallies
from sandloom.db.tables import (
    exec_events,
    execs,
    metadata,
    operations,
    sandbox_history,
    sandboxes,
    usage_days,
    usage_records,
    workers,
)
from sandloom.db.tallies import Tally
from sandloom.errors import SandboxNotFound
from sandloom.reclaim import prune
from sandloom.reclaim.policy import ReclaimPolicy
from sandloom.tenants.records import KeyScope
from tests.integration.domain.world import TENANT, World, key

DAY_US = 86_400 * MICROSECONDS


def pruned(world: World) -> dict[str, int]:
    """How many rows each step removes, batch after batch, until there are none."""
    found = {}
    for name in ("execs", "history", "operations", "uids", "sandboxes", "workers", "usage", "keys"):
        step: Callable[[], int] = getattr(world.pruning, name)
        found[name] = sum(iter(step, 0))
    return found


def test_every_table_is_pruned_or_is_bounded_for_a_reason():
    assert set(metadata.tables) == set(prune.STEPS) | set(prune.BOUNDED)
    assert not set(prune.STEPS) & set(prune.BOUNDED)
    assert all(prune.BOUNDED.values())
    assert all(callable(getattr(prune.Prune, step)) for step in prune.STEPS.values())


def aged(world: World, days: int) -> None:
    """Everything happened so many days earlier."""
    for table in metadata.sorted_tables:
        for column in table.columns:
            if column.name.endswith("_us") and column.name != "look_us":
                world.set(table, column > DAY_US, **{column.name: column - days * DAY_US})
    world.set(sandboxes, sandboxes.c.look_us >= 0, look_us=0)
    world.set(usage_days, usage_days.c.day >= days, day=usage_days.c.day - days)


def one_of_everything(world: World, number: int = 1) -> None:
    """A sandbox that was released after a command and a file call, on a worker that was then lost; and a key that was
    revoked."""
    world.keys.revoke(TENANT, world.keys.create(TENANT, "key", [KeyScope.READ], "tester")[0].key_id)
    world.register(f"w{number}")
    route = world.ready(f"box-{number}")
    world.sandboxes.touch(route.fence, f"op-{number}")
    world.usage.note_stored(route.key, 1)
    world.finish(world.running(route, f"run-{number}"), events=[("stdout", b"x")] * 3)
    world.released(route)
    world.lose(f"w{number}")


def test_nothing_is_left_of_what_ended_long_ago(world: World):
    for number in range(3):
        one_of_everything(world, number)
    world.reclaim_policy(batch_size=2)
    assert not any(pruned(world).values())
    aged(world, 16)
    steps = {"execs": 3, "history": 3, "operations": 3, "uids": 0, "sandboxes": 3, "workers": 3, "usage": 0, "keys": 3}
    assert pruned(world) == steps
    aged(world, 400)
    assert pruned(world) == {**dict.fromkeys(steps, 0), "usage": 3}
    assert {name: rows for name, rows in world.dump().items() if rows and name != "tallies"} == {}
    assert not any(pruned(world).values())


def test_every_pruned_table_had_rows_in_that_test(world: World):
    one_of_everything(world)
    full = {name for name, rows in world.dump().items() if rows}
    assert set(prune.STEPS) <= full


def test_what_is_young_open_or_current_stays(world: World):
    one_of_everything(world, 2)
    aged(world, 7)
    route = world.started()
    world.queued(route, "open")
    world.set(execs, execs.c.exec_id == "open", queued_us=1)
    world.set(sandbox_history, sandbox_history.c.sandbox_id == "box", started_us=1)
    assert not any(pruned(world).values())
    world.check()


def test_generations_that_ended_go_and_the_current_one_stays(world: World):
    world.started()
    world.restart()
    aged(world, 16)
    assert pruned(world)["history"] == 1
    assert [row.generation for row in world.rows(sandbox_history)] == [2]
    world.check()


def test_nobody_who_knew_what_was_pruned_is_taken_for_current(world: World):
    for _ in range(3):
        world.register("w1", takeover=True)
        world.released(world.ready("box"))
    world.lose()
    aged(world, 16)
    assert (pruned(world)["sandboxes"], pruned(world)["workers"]) == (1, 0)
    with pytest.raises(SandboxNotFound):
        world.sandboxes.get(key())
    assert world.register().epoch == 4
    assert world.resolve().generation == 4
    assert world.resolve("other").generation == 4
    assert not world.fleet.renew("w1", 3, 600, {})
    world.check()


def test_a_worker_with_a_sandbox_stays_and_others_go(world: World):
    world.suspended("snap")
    world.suspensions.drop_copy(world.fence1, "snap")
    world.lose()
    one_of_everything(world, 2)
    aged(world, 16)
    world.set(sandboxes, sandboxes.c.sandbox_id == "box", status_us=world.now_us())
    assert pruned(world)["workers"] == 1
    assert [row.worker_id for row in world.rows(workers)] == ["w1"]
    assert world.sandboxes.get(key()).snapshot == "snap"


@pytest.mark.parametrize(("storage", "freed"), [("local", 1), ("shared", 0)])
def test_quarantined_uids_of_a_local_root_are_free_at_last(world: World, storage: str, freed: int):
    world.started(storage_mode=storage)
    world.lose()
    world.set_orphans_due()
    assert world.reclaim.release_orphans() == 1
    world.set(workers, workers.c.worker_id == "w1", lease_expires_us=world.now_us())
    assert not any(pruned(world).values())
    aged(world, 16)
    found = pruned(world)
    assert (found["uids"], found["sandboxes"], found["workers"]) == (freed, freed, freed)
    world.check()


def test_events_of_a_long_command_go_in_parts_and_a_reader_between_is_told(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(prune, "EVENTS_AT_ONCE", 2)
    record = world.running(world.started())
    world.finish(record, events=[("stdout", b"x")] * 5)
    aged(world, 16)
    writes = []
    write = world.db.write

    def stopped_after_two(function):
        writes.append(function)
        if len(writes) > 2:
            raise KeyboardInterrupt
        return write(function)

    monkeypatch.setattr(world.db, "write", stopped_after_two)
    with pytest.raises(KeyboardInterrupt):
        world.pruning.execs()
    monkeypatch.undo()
    page = world.execs.events(record.key, 0)
    assert (page.first_available_seq, [event.seq for event in page.events]) == (5, [5, 6, 7, 8])
    assert world.execs.events(record.key, 4).first_available_seq == 1
    assert pruned(world)["execs"] == 1
    assert not world.rows(exec_events)
    assert not world.rows(usage_records)
    assert not world.rows(execs)


def test_operations_are_kept_as_long_as_a_message_can_repeat_them(world: World):
    world.sandboxes.touch(world.started().fence, "op")
    aged(world, 7)
    assert pruned(world)["operations"] == 0
    aged(world, 2)
    assert pruned(world)["operations"] == 1
    assert not world.rows(operations)


def test_prune_takes_no_more_than_a_batch(db):
    world = World(db, reclaim=ReclaimPolicy(batch_size=2))
    for number in range(3):
        one_of_everything(world, number)
    aged(world, 16)
    for name in ("execs", "history", "operations", "sandboxes", "workers"):
        assert [getattr(world.pruning, name)() for _ in range(3)] == [2, 1, 0], name


def test_tallies_only_grow(world: World):
    tallies.raise_to(world.db, Tally.PRUNED_EPOCH, 5)
    tallies.raise_to(world.db, Tally.PRUNED_EPOCH, 3)
    tallies.add(world.db, {Tally.UIDS_FREED: 2, Tally.ROWS_PRUNED: 0})
    tallies.add(world.db, {Tally.UIDS_FREED: 3, Tally.WORKERS_LOST: 1})
    found = tallies.counts(world.db)
    assert (found["uids_freed"], found["workers_lost"], found["rows_pruned"]) == (5, 1, 0)
    assert set(found) == set(tallies.COUNTS)
    assert world.register().epoch == 6
