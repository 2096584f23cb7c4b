"""What is reported as used is what the receipts say, wherever it stands and whatever was tried twice."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from functools import partial

import pytest
from sqlalchemy import Connection

from sandloom.clock import MICROSECONDS
from sandloom.db import Database
from sandloom.db.tables import execs, usage_records
from sandloom.execs import repository
from sandloom.execs.records import Exec
from sandloom.ids import ExecKey
from sandloom.tenants.records import UsageQuestion, UsageRow
from sandloom.tenants.usage import DAY_US
from tests.integration.domain.pairs import apply
from tests.integration.domain.paused import interleave
from tests.integration.domain.world import DONE, TENANT, World, key, request

ALWAYS = UsageQuestion(TENANT, 0, 1 << 20)
SUMS = ("execs", "cpu_ms", "wall_ms", "memory_mib_ms", "io_bytes", "egress_bytes", "model_tokens")


@pytest.fixture
def world(db: Database) -> World:
    """Nothing that was looked up is remembered."""
    return World(db, kept_seconds=0)


def ran(world: World, sandbox_id: str, exec_id: str, number: int, tenant_id: str = TENANT, **labels: str) -> Exec:
    """A command that ended, with numbers of its own."""
    route = world.ready(sandbox_id, tenant_id)
    asked = request(exec_id, labels=labels)
    claimed = world.claim(world.execs.admit(route.key, route.generation, asked)[0])
    assert claimed is not None
    usage = {"cpu_ms": number, "max_rss_bytes": number << 20, "io_bytes": 3 * number, "egress_bytes": 5 * number,
             "model_tokens": 7 * number}  # fmt: skip
    assert world.finish(claimed, dataclasses.replace(DONE, usage=usage, duration_ms=number + 1))
    assert not world.finish(claimed, dataclasses.replace(DONE, usage=usage, duration_ms=number + 1))
    return world.execs.get(claimed.key)


def of_receipts(records: list[Exec]) -> tuple[int, ...]:
    used = [record.usage for record in records]
    peak = [-(-u["max_rss_bytes"] * (r.duration_ms or 0) // (1 << 20)) for u, r in zip(used, records, strict=True)]
    names = ("io_bytes", "egress_bytes", "model_tokens")
    walls = sum(record.duration_ms or 0 for record in records)
    return (len(records), sum(u["cpu_ms"] for u in used), walls, sum(peak), *(sum(u[n] for u in used) for n in names))


def sums(row: UsageRow) -> tuple[int, ...]:
    return tuple(getattr(row, name) for name in SUMS)


def report(world: World, **values: object) -> tuple[list[UsageRow], int, UsageRow]:
    return world.usage.report(dataclasses.replace(ALWAYS, **values), 100, 0)  # type: ignore[arg-type]


@pytest.fixture
def records(world: World) -> list[Exec]:
    world.register()
    found = [ran(world, f"box-{n % 2}", f"run-{n}", n + 1, team="ab"[n % 2], part=str(n % 3)) for n in range(5)]
    found.append(ran(world, "box-0", "bare", 11))
    ran(world, "box-0", "run-0", 1000, "other", team="a")
    return found


def test_the_sums_are_those_of_the_receipts(world: World, records: list[Exec]):
    _, count, total = report(world)
    assert (count, sums(total)) == (0, of_receipts(records))
    assert sums(report(world, tenant_id=None)[2])[0] == len(records) + 1


@pytest.mark.parametrize("put_away", [False, True])
def test_each_group_has_its_own_and_together_they_are_all(world: World, records: list[Exec], put_away: bool):
    if put_away:  # half of them
        aged(world, [record for record in records if record.key.sandbox_id == "box-1"])
        assert world.pruning.execs() == 2
    groups, count, total = report(world, group_by=("sandbox",))
    assert [(row.sandbox_id, row.tenant_id, row.label) for row in groups] == [
        ("box-0", None, None), ("box-1", None, None),
    ]  # fmt: skip
    assert count == 2
    for row in groups:
        assert sums(row) == of_receipts([record for record in records if record.key.sandbox_id == row.sandbox_id])
    assert tuple(map(sum, zip(*map(sums, groups), strict=True))) == sums(total) == of_receipts(records)
    assert sums(report(world, sandbox_id="box-1")[2]) == sums(groups[1])
    assert sums(report(world, workspace_scope_id="nobody's")[2]) == (0,) * 7
    every = report(world, tenant_id=None, group_by=("tenant", "scope"))[0]
    assert {(row.tenant_id, row.workspace_scope_id) for row in every} == {(TENANT, "scope"), ("other", "scope")}


def test_by_the_value_of_a_label(world: World, records: list[Exec]):
    groups = {row.label: sums(row) for row in report(world, label="team")[0]}
    wanted = {
        value: of_receipts([record for record in records if record.request.labels.get("team") == value])
        for value in ("a", "b", None)
    }
    assert groups == wanted
    assert report(world, label="team.of/them")[0][0].label is None


def test_pages_hold_every_group_once(world: World, records: list[Exec]):
    asked = dataclasses.replace(ALWAYS, group_by=("sandbox",), label="part")
    pages = [world.usage.report(asked, 2, offset)[0] for offset in (0, 2, 4, 6)]
    seen = [(row.sandbox_id, row.label) for page in pages for row in page]
    assert len(seen) == len(set(seen)) == world.usage.report(asked, 2, 0)[1]


def test_days_are_those_of_utc(world: World, records: list[Exec]):
    world.set(usage_records, usage_records.c.exec_id == "run-1", finished_us=10 * DAY_US - 1)
    world.set(usage_records, usage_records.c.exec_id == "run-2", finished_us=10 * DAY_US)
    one, _, total = report(world, first_day=9, end_day=10, group_by=("day",))
    assert ([row.day for row in one], sums(total)) == ([9], of_receipts([records[1]]))
    assert sums(report(world, first_day=10, end_day=11)[2]) == of_receipts([records[2]])


def test_two_that_put_away_the_same_commands_count_them_once(world: World, rival: Database, records: list[Exec]):
    before = report(world, group_by=("sandbox",))
    aged(world, records)
    interleave(world.db, rival, partial(apply, "prune"), partial(apply, "prune"))
    assert not [row for row in world.rows(usage_records) if row.tenant_id == TENANT]
    assert report(world, group_by=("sandbox",))[2] == before[2]


def test_a_crash_while_a_command_is_put_away_moves_nothing(world: World, records: list[Exec], monkeypatch):
    aged(world, records)
    before = report(world)[2]

    def crash(*_: object) -> Iterator[None]:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("sandloom.reclaim.prune._of", crash)
        with pytest.raises(KeyboardInterrupt):
            world.pruning.execs()
    assert report(world)[2] == before
    assert world.pruning.execs() == len(records)
    assert report(world)[2] == before


def test_a_command_that_was_lost_is_counted_once_whoever_ends_it(world: World):
    record = world.running(world.started())
    world.lose()
    assert world.reclaim.end_lost_execs()
    assert not world.finish(record)
    world.restart()
    assert not world.reclaim.end_lost_execs()
    assert report(world)[2].execs == 1


def test_a_crash_before_the_commit_of_the_end_counts_nothing(world: World):
    record = world.running(world.started())

    def crash(connection: Connection) -> None:
        repository.end(connection, record.key, "RUNNING", record.generation, record.last_seq, [], DONE)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        world.db.write(crash)
    assert report(world)[2].execs == 0
    assert world.finish(record)
    assert sums(report(world)[2])[:2] == (1, 3)


def test_an_id_that_is_used_again_after_its_record_is_gone_counts_again(world: World):
    world.register()
    for number in (1, 2):
        aged(world, [ran(world, "box", "run", number)])
        assert world.pruning.execs() == 1
    assert (report(world)[2].execs, report(world)[2].cpu_ms) == (2, 3)


def test_of_a_day_the_most_that_was_stored_counts(world: World):
    route = world.started()
    for stored in (5, 9, 7):
        world.usage.note_stored(route.key, stored)
    world.usage.note_stored(key("nobody"), 100)
    assert report(world)[2].stored_byte_days == 9
    assert world.usage.of_today(TENANT) == (0, 0, 9)


def aged(world: World, records: list[Exec]) -> None:
    """Past their retention, but not their usage's."""
    for record in records:
        key: ExecKey = record.key
        long_ago = (record.finished_us or 0) - 16 * 86_400 * MICROSECONDS
        for table in (execs, usage_records):
            mine = (table.c.tenant_id == key.tenant_id) & (table.c.sandbox_id == key.sandbox_id)
            world.set(table, mine & (table.c.exec_id == key.exec_id), finished_us=long_ago)
