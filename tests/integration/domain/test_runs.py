"""Whole runs of maintenance: two at once, one that dies in the middle, the first after a long silence."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar, cast

from sqlalchemy import Connection

from sandloom.broker.cleaning import open_cleaner
from sandloom.db import Database, tallies
from sandloom.db.tables import execs, sandboxes, workers
from sandloom.db.tables import tallies as tally_rows
from sandloom.ids import ExecKey
from sandloom.reclaim.policy import ReclaimPolicy
from sandloom.reclaim.queues import UnusedQueues
from sandloom.reclaim.watcher import LeaseWatcher
from sandloom.streams.memory import MemoryBus
from tests.integration.domain.races import together
from tests.integration.domain.world import World
from workers.broker_cleaning import BrokerCleaning
from workers.maintenance import Maintenance
from workers.results import Results

T = TypeVar("T")


class Sent:
    """Stands where messages leave; what it was given is kept."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []
        self.rung: list[str] = []

    def ring(self, queue: str, key: ExecKey, generation: int) -> bool:
        self.rung.append(key.exec_id)
        return True

    def send(self, queue: str, task: str, tenant_id: str, arguments: Any, *, ttl_seconds: float) -> bool:
        self.told.append((task, arguments["sandbox_id"]))
        return True


class Beat:
    """A process that runs maintenance, with a clock that is set by hand."""

    def __init__(self, db: Database, *, policy: ReclaimPolicy | None = None) -> None:
        world = World(db, reclaim=policy)
        self.sent = Sent()
        self.seconds = 0.0
        self.watcher = LeaseWatcher(
            world.fleet.leases, lost_after_seconds=100, max_gap_seconds=30, clock=lambda: self.seconds
        )
        sent = cast(Any, self.sent)
        self.maintenance = Maintenance(
            world.reclaim, world.dormant, world.loose, world.pruning, None, self.watcher, world.execs, sent, sent,
            MemoryBus(), Results(cast(Any, None), world.execs),
            BrokerCleaning(UnusedQueues(db, policy or ReclaimPolicy()), open_cleaner("memory://", "test")),
        )  # fmt: skip

    def watch(self, seconds: int, between: Callable[[], object] = lambda: None) -> None:
        """Look at the leases every 20 s for that long."""
        for _ in range(0, seconds, 20):
            self.watcher.observe()
            between()
            self.seconds += 20
        self.watcher.observe()

    def run(self) -> None:
        self.maintenance.reclaim()
        self.maintenance.ring_again()
        self.maintenance.prune()


class Dying:
    """``Database`` of a process that dies right after one of its commits."""

    def __init__(self, db: Database, commits: int) -> None:
        self._db = db
        self.dialect, self.engine = db.dialect, db.engine
        self.left = commits

    def read(self, function: Callable[[Connection], T]) -> T:
        return self._db.read(function)

    def write(self, function: Callable[[Connection], T]) -> T:
        result = self._db.write(function)
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt
        return result

    write_one = write


def much_is_due(world: World) -> None:
    """On a worker that lives and on one that is lost."""
    world.register("w2", root_id="r2")
    route = world.ready("lost")
    world.queued(route, "lost-queued", "a")
    world.running(route, "lost-running", "b")
    world.set(workers, workers.c.worker_id == "w2", capacity=0, lease_expires_us=world.now_us() - 400_000_000)
    world.register("w1")
    world.ready("idle")
    sleeper = world.ready("sleeper")
    world.suspensions.begin(sleeper.fence)
    world.suspensions.finish(sleeper.fence)
    world.sandboxes.begin_release(world.ready("stalled").key, None, "tester", "released")
    world.forget_activity()
    world.set(sandboxes, sandboxes.c.sandbox_id == "sleeper", status_us=1)
    now_us = world.now_us()
    world.set(sandboxes, sandboxes.c.sandbox_id == "stalled", status_us=now_us - 40_000_000)
    busy = world.ready("busy")
    for name in ("late", "unheard", "done"):
        world.queued(busy, name, name)
    world.finish(world.claim(world.exec("done", "busy")) or world.exec("done", "busy"))
    world.set(execs, execs.c.exec_id == "late", queued_us=1)
    world.set(execs, execs.c.exec_id == "unheard", ring_us=1)
    world.set(execs, execs.c.exec_id == "done", finished_us=1)
    world.set(workers, workers.c.worker_id == "w1", reserved=9)


def state_of(world: World) -> dict[str, Any]:
    return {
        "sandboxes": {row.sandbox_id: row.status for row in world.rows(sandboxes)},
        "execs": {row.exec_id: row.status for row in world.rows(execs)},
        "workers": {row.worker_id: (row.status, row.reserved) for row in world.rows(workers)},
    }


DONE = {
    "sandboxes": {
        "lost": "RELEASED", "idle": "RELEASING", "sleeper": "RELEASING", "stalled": "RELEASING", "busy": "RUNNING",
    },
    "execs": {"lost-queued": "WORKER_LOST", "lost-running": "WORKER_LOST", "late": "TIMED_OUT", "unheard": "QUEUED"},
    "workers": {"w1": ("ACTIVE", 4), "w2": ("GONE", 0)},
}  # fmt: skip


def beat_that_watched(db: Database, world: World) -> Beat:
    beat = Beat(db)
    beat.watch(140, lambda: world.fleet.renew("w1", 1, 600, {}))
    return beat


def test_two_beats_at_once_do_everything_once(world: World, rival: Database):
    much_is_due(world)
    beats = [beat_that_watched(db, world) for db in (world.db, rival)]
    assert together([beat.run for beat in beats]) == [None, None]
    assert state_of(world) == DONE
    world.check()
    told = [message for beat in beats for message in beat.sent.told]
    assert sorted(set(told)) == [("sandloom.release", name) for name in ("idle", "sleeper", "stalled")]
    assert told.count(("sandloom.release", "idle")) == told.count(("sandloom.release", "sleeper")) == 1
    assert [name for beat in beats for name in beat.sent.rung] == ["unheard"]
    counted = {name: number for name, number in tallies.counts(world.db).items() if number}
    assert counted.pop("releases_repeated") in (1, 2)
    assert counted == {
        "workers_lost": 1, "execs_lost": 2, "sandboxes_lost": 1, "queue_timeouts": 1, "idle_releases": 1,
        "expired_releases": 1, "slots_corrected": 1, "rings_repeated": 1, "rows_pruned": 1,
    }  # fmt: skip


def test_wherever_a_beat_dies_the_next_one_ends_with_the_same(hasty_sqlite: Database):
    world = World(hasty_sqlite)
    commits = 0
    while True:
        commits += 1
        world.empty()
        much_is_due(world)
        dying = Dying(hasty_sqlite, commits)
        beat = beat_that_watched(cast(Database, dying), world)
        try:
            beat.run()
        except KeyboardInterrupt:
            beat_that_watched(hasty_sqlite, world).run()
        else:
            break
        world.check()
        assert state_of(world) == DONE, f"after {commits} commits"
    assert commits > 12


def test_after_an_hour_without_a_beat_one_run_does_it_all(db: Database):
    world = World(db)
    world.register()
    for box in range(4):
        route = world.ready(f"box-{box}")
        for number in range(8):
            world.queued(route, f"run-{number}", f"scope-{number}")
    for box in range(12):
        world.ready(f"idle-{box}")
    world.forget_activity()
    world.set(execs, execs.c.exec_id.is_not(None), queued_us=1)
    beat = Beat(db, policy=ReclaimPolicy(batch_size=5))
    beat.watch(20)
    beat.seconds += 3600
    beat.watch(60)
    beat.run()
    assert {row.status for row in world.rows(execs)} == {"TIMED_OUT"}
    assert {row.status for row in world.rows(sandboxes) if row.sandbox_id.startswith("idle")} == {"RELEASING"}
    assert world.rows(workers)[0].status == "ACTIVE", "nobody was seen silent while nobody looked"
    assert len(beat.sent.told) == 12
    world.check()


def test_a_step_that_fails_leaves_the_others_their_turn(hasty_sqlite: Database):
    world = World(hasty_sqlite)
    world.empty()
    much_is_due(world)
    beat = beat_that_watched(hasty_sqlite, world)
    reclaim = cast(Any, beat.maintenance)._reclaim
    reclaim.end_lost_execs = partial(cast(Any, lambda: 1 / 0))
    beat.run()
    assert world.exec("late", "busy").status == "TIMED_OUT"
    assert world.box(world.sandboxes.get(world.exec("late", "busy").key.sandbox).key).status == "RUNNING"
    assert {row.name: row.value for row in world.rows(tally_rows)}["steps_failed"] == 1
