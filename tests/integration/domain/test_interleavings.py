"""Every pair of writes in the order that hurts: the first is not yet committed when the second begins."""

from __future__ import annotations

from functools import partial

import pytest

from sandloom.db import Database
from sandloom.errors import OperationSeen, SandloomError
from tests.integration.domain.pairs import (
    QUEUED,
    STATES,
    State,
    apply,
    idle,
    opened,
    overdue,
    released,
)  # fmt: skip
from tests.integration.domain.paused import interleave
from tests.integration.domain.world import World, key


@pytest.mark.parametrize(
    ("state", "first"),
    [pytest.param(s, first, id=f"{s.__name__}-{first}") for s, (firsts, _) in STATES.items() for first in firsts],
)
def test_whatever_follows_an_uncommitted_write_leaves_the_rows_agreeing(
    world: World, rival: Database, state: State, first: str
):
    for second in STATES[state][1]:
        world.empty()
        state(world)
        results = interleave(world.db, rival, partial(apply, first), partial(apply, second))
        for name, result in zip((first, second), results, strict=True):
            expected = not isinstance(result, Exception) or isinstance(result, SandloomError)
            assert expected, f"{first} → {second}: {name} raised {result!r}"
            assert getattr(result, "code", "") != "SERVICE_UNAVAILABLE", f"{first} → {second}: {name}"
        try:
            world.check()
        except AssertionError as error:
            raise AssertionError(f"{first} → {second}: {error}") from None


def test_releasing_a_sandbox_that_is_being_assigned_elsewhere_finds_it(world: World, rival: Database):
    released(world)
    _, route = interleave(world.db, rival, partial(apply, "resolve"), partial(apply, "release"))
    assert (route.generation, route.worker_id, route.status) == (2, "w2", "RELEASING")


def test_resolving_while_the_worker_restarts_gives_the_new_epoch(world: World, rival: Database):
    idle(world)
    _, route = interleave(world.db, rival, partial(apply, "restart"), partial(apply, "resolve"))
    assert (route.generation, route.worker_epoch) == (2, 2)


def test_a_command_admitted_while_the_worker_restarts_goes_on_under_the_new_epoch(world: World, rival: Database):
    idle(world)
    interleave(world.db, rival, partial(apply, "admit"), partial(apply, "restart"))
    record = world.exec("new")
    assert (record.generation, record.worker_epoch, record.status) == (2, 2, "QUEUED")
    world.sandboxes.mark_ready(world.sandboxes.get(key()).fence)
    assert world.claim(record) is not None


def test_a_command_claimed_while_the_worker_restarts_is_ended_as_lost(world: World, rival: Database):
    opened(world)
    interleave(world.db, rival, partial(apply, "claim"), partial(apply, "restart"))
    assert world.execs.get(QUEUED).status == "WORKER_LOST"


def test_a_worker_whose_renewal_is_under_way_is_not_declared_lost(world: World, rival: Database):
    opened(world)
    assert interleave(world.db, rival, partial(apply, "renew"), partial(apply, "declare lost")) == (True, False)


def test_a_doorbell_that_is_due_is_rung_by_one(world: World, rival: Database):
    overdue(world)
    one, other = interleave(world.db, rival, partial(apply, "due rings"), partial(apply, "due rings"))
    assert ([exec_key for _, exec_key, _ in one], other) == ([QUEUED], [])


def test_a_file_operation_is_claimed_by_one(world: World, rival: Database):
    idle(world)
    one, other = interleave(world.db, rival, partial(apply, "touch"), partial(apply, "touch"))
    assert not isinstance(one, Exception)
    assert isinstance(other, OperationSeen)
