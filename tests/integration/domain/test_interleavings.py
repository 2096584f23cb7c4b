"""Every pair of writes in the order that hurts: the first is not yet committed when the second begins."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from sandloom.db import Database
from sandloom.errors import SandloomError
from sandloom.ids import ExecKey
from sandloom.sandboxes.repository import recount
from tests.integration.domain.paused import interleave
from tests.integration.domain.world import REFUSED, World, key, request

QUEUED, RUNNING = ExecKey("default", "box", "queued"), ExecKey("default", "box", "running")
Write = Callable[[World], Any]

#: Each acts as generation 1 of worker w1, epoch 1, unless it looks for itself.
WRITES: dict[str, Write] = {
    "resolve": lambda w: w.resolve(),
    "admit": lambda w: w.execs.admit(key(), 1, request("new", "c")),
    "admit same": lambda w: w.execs.admit(key(), 1, request("queued", "a")),
    "admit whole": lambda w: w.execs.admit(key(), 1, request("whole")),
    "claim": lambda w: w.execs.claim(QUEUED, 1, "w1", 1),
    "append": lambda w: w.execs.append(RUNNING, "w1", 1, 2, [("stdout", b"x")]),
    "finish": lambda w: w.finish(w.execs.get(RUNNING)),
    "cancel queued": lambda w: w.execs.cancel(QUEUED),
    "cancel running": lambda w: w.execs.cancel(RUNNING),
    "refuse": lambda w: w.execs.refuse(QUEUED, "w1", 1, REFUSED),
    "ready": lambda w: w.sandboxes.mark_ready(w.fence1),
    "touch": lambda w: w.sandboxes.touch(w.fence1, "op"),
    "release": lambda w: w.sandboxes.begin_release(key(), None, "tester", "released"),
    "finish release": lambda w: w.sandboxes.finish_release(w.fence1),
    "restart": lambda w: w.restart(),
    "restart empty": lambda w: w.restart(present=frozenset()),
    "renew": lambda w: w.fleet.renew("w1", 1, 600, {}),
    "end lost": lambda w: w.reclaim.end_lost_execs(),
    "orphans": lambda w: w.reclaim.release_orphans(),
    "idle": lambda w: w.reclaim.begin_idle_releases(),
    "recount": lambda w: w.reclaim.recount_slots() or sandbox_recount(w),
    "queue timeouts": lambda w: w.reclaim.end_queue_timeouts(),
}


def sandbox_recount(world: World) -> Any:
    """Also where nothing was seen to have drifted before."""
    return world.db.write(partial(recount, worker_id="w1"))


def apply(name: str, db: Database) -> Any:
    return WRITES[name](World(db))


def opened(world: World) -> None:
    """One command waits and one runs."""
    route = world.started()
    world.queued(route, "queued", "a")
    world.running(route, "running", "b")


def assigned(world: World) -> None:
    """After a restart: a command waits already and the sandbox is not ready yet."""
    world.register()
    route = world.resolve()
    world.set_status(route.key, "READY")
    world.queued(route, "queued", "a")
    world.set_status(route.key, "ASSIGNED")


def releasing(world: World) -> None:
    world.sandboxes.begin_release(world.started().key, None, "tester", "released")


def released(world: World) -> None:
    """The next resolve goes to another worker."""
    world.released(world.started())
    world.register("w2", isolation_level="strict")


def lost(world: World) -> None:
    """The worker is declared lost for long, and its commands have not been ended."""
    opened(world)
    world.lose()
    world.set_orphans_due()
    world.register("w2")


def idle(world: World) -> None:
    world.started()
    world.forget_activity()


#: What is held before its commit in a state, and what then begins.
STATES: dict[Callable[[World], None], tuple[tuple[str, ...], tuple[str, ...]]] = {
    opened: (
        ("admit", "claim", "finish", "cancel queued", "release", "restart"),
        (
            "admit", "admit same", "claim", "append", "finish", "cancel queued", "cancel running", "refuse", "release",
            "restart", "restart empty",
        ),
    ),
    assigned: (
        ("cancel queued", "ready", "restart"),
        ("admit", "cancel queued", "refuse", "ready", "release", "restart"),
    ),
    releasing: (("finish release", "restart"), ("resolve", "ready", "finish release", "restart", "recount")),
    released: (("resolve",), ("resolve", "release", "restart", "recount")),
    lost: (
        ("restart", "end lost", "orphans"),
        ("resolve", "finish", "cancel queued", "append", "release", "restart", "renew", "end lost", "orphans"),
    ),
    idle: (
        ("resolve", "idle", "admit whole"),
        ("resolve", "admit", "admit whole", "touch", "release", "idle", "restart"),
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("state", "first"),
    [pytest.param(s, first, id=f"{s.__name__}-{first}") for s, (firsts, _) in STATES.items() for first in firsts],
)
def test_whatever_follows_an_uncommitted_write_leaves_the_rows_agreeing(
    world: World, rival: Database, state: Callable[[World], None], first: str
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
