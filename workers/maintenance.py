"""Maintenance: the decisions of ``sandloom.reclaim``, and the messages that follow from them.

Every call is safe to run twice at once and safe to miss; each takes a bounded number of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeVar

from sandloom.clock import monotonic_seconds
from sandloom.contracts.ports import Bus, Publisher
from sandloom.db.tallies import Tally
from sandloom.errors import ObjectStoreUnavailable, Unavailable
from sandloom.execs.service import Execs
from sandloom.objects import ObjectStore
from sandloom.reclaim.prune import Prune
from sandloom.reclaim.service import Ended, Reclaim
from sandloom.reclaim.suspended import Suspended
from sandloom.reclaim.watcher import LeaseWatcher
from sandloom.sandboxes.loose import LooseSnapshots
from sandloom.sandboxes.records import Route
from sandloom.telemetry import get_logger
from workers.broker_cleaning import BrokerCleaning
from workers.post import FleetPost
from workers.results import Results
from workers.snapshots import discard

T = TypeVar("T")
log = get_logger("sandloom.workers.maintenance")

TELL_TTL_SECONDS = 60.0
#: How long one run goes on taking batches of what can be many; the next run takes the rest.
RECLAIM_SECONDS = 60.0
PRUNE_SECONDS = 1800.0

Step = Callable[[], object]


class Maintenance:
    """What ``sandloom.maintenance.*`` call."""

    def __init__(
        self,
        reclaim: Reclaim,
        suspended: Suspended,
        loose: LooseSnapshots,
        pruning: Prune,
        objects: ObjectStore | None,
        watcher: LeaseWatcher,
        execs: Execs,
        publisher: Publisher,
        post: FleetPost,
        bus: Bus,
        results: Results,
        cleaning: BrokerCleaning,
    ) -> None:
        self._reclaim = reclaim
        self._suspended = suspended
        self._loose = loose
        self._pruning = pruning
        self._objects = objects
        self._watcher = watcher
        self._execs = execs
        self._publisher = publisher
        self._post = post
        self._bus = bus
        self._results = results
        self._cleaning = cleaning

    def reclaim(self) -> None:
        """Lost workers, waiting too long, slots that drifted, idle sandboxes, releases that got stuck."""
        steps: tuple[Step, ...] = (
            self._lost_workers, self._lost_execs, self._queue_timeouts, self._orphans, self._slots, self._releases,
            self._suspends, self._discard_snapshots, self._cleaning.remove_queues, self._look_later,
        )  # fmt: skip
        self._run(*steps)

    def ring_again(self) -> None:
        """Doorbells of rows that still wait; each row is due less often the longer it waits."""
        rung = 0
        for queue, key, generation in self._reclaim.due_rings():
            if not self._publisher.ring(queue, key, generation):
                break  # the broker is down: everything is due again later
            rung += 1
        self._reclaim.count({Tally.RINGS_REPEATED: rung})

    def prune(self) -> None:
        """Commands and audit before the sandboxes that they belong to, and these before their workers."""
        pruning = self._pruning
        steps = (
            pruning.execs,
            pruning.history,
            pruning.operations,
            pruning.uids,
            pruning.sandboxes,
            pruning.workers,
            pruning.usage,
            pruning.keys,
        )
        tallies = {pruning.uids: Tally.UIDS_FREED}
        self._run(
            self._cleaning.expire_replies,
            *(partial(self._prune, step, tallies.get(step, Tally.ROWS_PRUNED)) for step in steps),
        )

    # --- steps ---

    def _run(self, *steps: Step) -> None:
        """Every step has its turn, whatever became of the others. Raises Unavailable: none could do anything."""
        for step in steps:
            try:
                step()
            except Unavailable:
                raise
            except Exception:
                log.exception("a step of maintenance failed")
                self._reclaim.count({Tally.STEPS_FAILED: 1})

    def _lost_workers(self) -> None:
        for lease in self._watcher.lapsed():
            if self._reclaim.declare_lost(lease):
                log.error("worker declared lost", worker_id=lease.worker_id, epoch=lease.epoch)
                self._reclaim.count({Tally.WORKERS_LOST: 1})
                for key, task_id in self._execs.ended_tasks(lease.worker_id):
                    self._results.complete(key, task_id)

    def _lost_execs(self) -> None:
        self._end(self._reclaim.end_lost_execs, Tally.EXECS_LOST)

    def _queue_timeouts(self) -> None:
        self._end(self._reclaim.end_queue_timeouts, Tally.QUEUE_TIMEOUTS)

    def _orphans(self) -> None:
        released = sum(_batches(self._reclaim.release_orphans, RECLAIM_SECONDS))
        if released:
            log.warning("sandboxes of lost workers released", number=released)
        self._reclaim.count({Tally.SANDBOXES_LOST: released})

    def _slots(self) -> None:
        corrected = self._reclaim.recount_slots()
        for worker_id, was, now in corrected:
            log.error("slots of a worker had drifted", worker_id=worker_id, was=was, now=now)
        self._reclaim.count({Tally.SLOTS_CORRECTED: len(corrected)})

    def _releases(self) -> None:
        begun = (
            (self._reclaim.begin_idle_releases, Tally.IDLE_RELEASES),
            (self._suspended.begin_releases, Tally.EXPIRED_RELEASES),
        )
        for begin, tally in begun:
            for routes in _batches(begin, RECLAIM_SECONDS):
                self._tell_all("sandloom.release", routes, tally)
        self._tell_all("sandloom.release", self._reclaim.stalled_releases(), Tally.RELEASES_REPEATED)

    def _suspends(self) -> None:
        for route in self._suspended.due():
            self._tell("sandloom.suspend", route, idle_since_us=route.last_active_us)
        self._tell_all("sandloom.suspend", self._suspended.cut_short(), Tally.SUSPENDS_REPEATED)

    def _look_later(self) -> None:
        for _ in _batches(self._reclaim.look_later, RECLAIM_SECONDS):
            pass

    def _prune(self, step: Callable[[], int], tally: Tally) -> None:
        for removed in _batches(step, PRUNE_SECONDS):
            self._reclaim.count({tally: removed})

    def _discard_snapshots(self) -> None:
        """Objects first: a snapshot whose name is forgotten would stay for ever."""
        if self._objects is None:
            return
        try:
            for route in self._suspended.unneeded_snapshots():
                if route.snapshot is not None:
                    discard(self._objects, route.key, route.snapshot)
                    self._suspended.forget_snapshot(route)
            for key, snapshot in self._loose.due():
                discard(self._objects, key, snapshot)
                self._loose.forget(key, snapshot)
        except ObjectStoreUnavailable as error:
            log.warning("snapshots are not removed now", reason=error.detail)

    # --- messages ---

    def _tell_all(self, task: str, routes: Sequence[Route], tally: Tally) -> None:
        for route in routes:
            self._tell(task, route)
        self._reclaim.count({tally: len(routes)})

    def _tell(self, task: str, route: Route, **more: int) -> None:
        arguments = {"sandbox_id": route.key.sandbox_id, "generation": route.generation, **more}
        self._post.send(route.queue, task, route.key.tenant_id, arguments, ttl_seconds=TELL_TTL_SECONDS)

    def _end(self, step: Callable[[], list[Ended]], tally: Tally) -> None:
        """Waiting clients hear of an end, also those that wait for the result of a task."""
        for batch in _batches(step, RECLAIM_SECONDS):
            for key, last_seq in batch:
                self._bus.publish_head(key, last_seq, True)
                self._results.complete(key, self._execs.get(key).task_id)
            self._reclaim.count({tally: len(batch)})


def _batches(step: Callable[[], T], seconds: float) -> Iterator[T]:
    """What a step gives until there is nothing left, for about ``seconds`` at most."""
    until = monotonic_seconds() + seconds
    while (found := step()) and monotonic_seconds() < until:
        yield found
    if found:
        yield found
