"""Compare-and-set under threads: whoever loses is told so, and the rows agree afterwards."""

from __future__ import annotations

import random
from collections import Counter
from functools import partial

import pytest

from sandloom.db.tables import execs, sandboxes, workers
from sandloom.errors import NoWorkerAvailable, ParallelLimit, ScopeBusy, WorkerIdInUse
from sandloom.execs.admission import ExecPolicy
from sandloom.execs.records import Exec
from sandloom.execs.states import TERMINAL
from sandloom.fleet.records import Registration
from sandloom.reclaim.adoption import register
from sandloom.sandboxes.records import Route
from tests.integration.domain.races import together
from tests.integration.domain.world import World, node, request


def test_one_new_id_resolved_by_many_is_one_sandbox(world: World):
    world.register()
    routes = together([world.resolve] * 16)
    assert {(r.generation, r.sandbox_uid) for r in routes} == {(1, 200_001)}
    assert world.row(workers).reserved == 1
    world.check()


def test_a_released_sandbox_resolved_by_many_moves_one_generation_on(world: World):
    world.register("w1", capacity=1)
    world.released(world.ready())
    world.register("w2", isolation_level="strict")
    routes = together([world.resolve] * 16)
    assert {(r.generation, r.worker_id) for r in routes} == {(2, "w2")}
    world.check()


@pytest.mark.parametrize("root", [None, "shared"])
def test_a_burst_fills_workers_exactly_to_their_capacity(world: World, root: str | None):
    for name in ("w1", "w2", "w3"):
        world.register(name, root_id=root or f"root-{name}", uid_end=200_099)

    results = together([partial(world.resolve, f"box-{n}") for n in range(200)])
    routes = [r for r in results if isinstance(r, Route)]
    errors = Counter(type(r) for r in results if not isinstance(r, Route))
    assert (len(routes), errors) == (60, Counter({NoWorkerAvailable: 140}))
    assert Counter(r.worker_id for r in routes) == {"w1": 20, "w2": 20, "w3": 20}
    assert len({(r.root_id, r.sandbox_uid) for r in routes}) == 60
    world.check()


def test_one_exec_id_admitted_at_once_is_one_command_for_all(world: World):
    route = world.started()
    for scope in (None, "tests"):
        results = together([partial(world.execs.admit, route.key, 1, request(f"run-{scope}", scope))] * 12)
        assert not [r for r in results if isinstance(r, Exception)]
        assert Counter(created for _, _, created in results) == {True: 1, False: 11}
        assert len({record.queued_us for record, _, _ in results}) == 1
        world.check()
        world.execs.cancel(results[0][0].key)


def test_one_scope_asked_for_at_once_is_given_to_one(world: World):
    route = world.started()
    results = together([partial(world.queued, route, f"run-{n}", "tests") for n in range(12)])
    assert Counter(type(r) for r in results) == {Exec: 1, ScopeBusy: 11}
    world.check()


def test_a_lifecycle_command_and_scoped_ones_never_share_the_sandbox(world: World):
    route = world.started()
    scopes = [None if n % 3 == 0 else f"scope-{n}" for n in range(12)]
    results = together([partial(world.queued, route, f"run-{n}", scopes[n]) for n in range(12)])
    assert {type(r) for r in results} <= {Exec, ScopeBusy}
    assert any(isinstance(r, Exec) for r in results)
    world.check()


def test_the_parallel_limit_is_never_exceeded(db):
    world = World(db, execs=ExecPolicy(max_parallel_execs_per_sandbox=4))
    route = world.started()
    results = together([partial(world.queued, route, f"run-{n}", f"scope-{n}") for n in range(12)])
    assert Counter(type(r) for r in results) == {Exec: 4, ParallelLimit: 8}
    world.check()


def test_one_of_many_claims_wins(world: World):
    route = world.started()
    record = world.queued(route)
    claims = together([lambda: world.claim(record)] * 12)
    assert len([c for c in claims if c is not None]) == 1
    assert not [c for c in claims if isinstance(c, Exception)]
    world.check()


def test_one_of_two_simultaneous_starts_of_a_worker_wins(world: World):
    results = together([lambda: register(world.db, node())] * 4)
    assert Counter(type(r) for r in results) == {Registration: 1, WorkerIdInUse: 3}
    assert world.row(workers).epoch == 1


def test_simultaneous_takeovers_get_an_epoch_each(world: World):
    world.register()
    world.ready()
    results = together([world.restart] * 4)
    assert sorted(r.epoch for r in results) == [2, 3, 4, 5]
    assert world.row(sandboxes).generation == 5
    world.check()


ROUNDS = 25


def test_whoever_ends_a_command_it_ends_once(world: World):
    """finish, cancel, queue timeout, loss, append and refuse at the same moment, many times."""
    route = world.started()
    world.register("w2", root_id="root-w1")
    chance = random.Random(7)
    for number in range(ROUNDS):
        width = chance.choice([1, 3])
        records = []
        for lane in range(width):
            record = world.queued(route, f"run-{number}-{lane}", f"scope-{lane}" if width > 1 else None)
            if chance.random() < 0.7:
                claimed = world.claim(record)
                assert claimed is not None
                record = claimed
            records.append(record)
        results = together([call for record in records for call in enders(world, record)])
        assert not [r for r in results if isinstance(r, Exception)]
        for record in records:
            if not world.execs.get(record.key).terminal:
                current = world.execs.get(record.key)
                assert world.finish(current), current
    world.check()
    assert {row.status for row in world.rows(execs)} <= set(TERMINAL)
    assert world.box(route.key).active_execs == 0


def enders(world: World, record: Exec):
    owner = (record.key, record.worker_id, record.worker_epoch)
    return [
        lambda: world.finish(record, events=[("stdout", b"x")]),
        lambda: world.execs.cancel(record.key),
        lambda: world.execs.append(*owner, record.last_seq, [("stdout", b"y")]),
        lambda: world.claim(record),
    ]
