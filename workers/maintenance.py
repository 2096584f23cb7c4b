"""Maintenance: the decisions of ``sandloom.reclaim``, and the messages that follow from them.

Every call is safe to run twice at once and safe to miss; each takes a bounded number of rows.
"""

from __future__ import annotations

from collections.abc import Iterable

from sandloom.contracts.ports import Bus, Publisher
from sandloom.errors import ObjectStoreUnavailable
from sandloom.execs.records import Exec
from sandloom.execs.service import Execs
from sandloom.ids import ExecKey
from sandloom.objects import ObjectStore
from sandloom.reclaim.service import Reclaim
from sandloom.reclaim.suspended import Suspended
from sandloom.reclaim.watcher import LeaseWatcher
from sandloom.sandboxes.records import Route
from sandloom.telemetry import get_logger
from workers.broker_cleaning import BrokerCleaning
from workers.post import FleetPost
from workers.results import Results
from workers.snapshots import discard

log = get_logger("sandloom.workers.maintenance")

TELL_TTL_SECONDS = 60.0
#: Batches that one run takes of what can be many.
MAX_BATCHES = 20


class Maintenance:
    """What ``sandloom.maintenance.*`` call."""

    def __init__(
        self,
        reclaim: Reclaim,
        suspended: Suspended,
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
        for lease in self._watcher.lapsed():
            if self._reclaim.declare_lost(lease):
                log.error("worker declared lost", worker_id=lease.worker_id, epoch=lease.epoch)
        self._publish(self._reclaim.end_lost_execs())
        self._publish(self._reclaim.end_queue_timeouts())
        released = self._reclaim.release_orphans()
        if released:
            log.warning("sandboxes of lost workers released", number=released)
        for worker_id, was, now in self._reclaim.recount_slots():
            log.error("slots of a worker had drifted", worker_id=worker_id, was=was, now=now)
        releases = (self._reclaim.begin_idle_releases, self._suspended.begin_releases, self._reclaim.stalled_releases)
        for begin in releases:
            for route in begin():
                self._tell("sandloom.release", route)
        for route in self._suspended.due():
            self._tell("sandloom.suspend", route, idle_since_us=route.last_active_us)
        for route in self._suspended.cut_short():
            self._tell("sandloom.suspend", route)
        self._discard_snapshots()
        self._cleaning.remove_queues()

    def ring_again(self) -> None:
        """Doorbells of rows that still wait; each row is due less often the longer it waits."""
        for queue, key, generation in self._reclaim.due_rings():
            if not self._publisher.ring(queue, key, generation):
                return  # the broker is down: everything is due again later

    def prune(self) -> None:
        self._cleaning.expire_replies()
        for _ in range(MAX_BATCHES):
            if self._reclaim.prune() == 0:
                return

    def _discard_snapshots(self) -> None:
        """Objects first: a snapshot whose name is forgotten would stay for ever."""
        if self._objects is None:
            return
        try:
            for route in self._suspended.unneeded_snapshots():
                if route.snapshot is not None:
                    discard(self._objects, route.key, route.snapshot)
                    self._suspended.forget_snapshot(route)
        except ObjectStoreUnavailable as error:
            log.warning("snapshots are not removed now", reason=error.detail)

    def _tell(self, task: str, route: Route, **more: int) -> None:
        arguments = {"sandbox_id": route.key.sandbox_id, "generation": route.generation, **more}
        self._post.send(route.queue, task, route.key.tenant_id, arguments, ttl_seconds=TELL_TTL_SECONDS)

    def _publish(self, ended: Iterable[tuple[ExecKey, int]]) -> None:
        """Waiting clients hear of an end, also those that wait for the result of a task."""
        for key, last_seq in ended:
            self._bus.publish_head(key, last_seq, True)
            record: Exec = self._execs.get(key)
            if record.task_id is not None:
                self._results.complete(self._execs.get(key, output=True))
