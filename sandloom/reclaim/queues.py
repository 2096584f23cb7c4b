"""Queues that nobody needs any more, by the rows."""

from __future__ import annotations

from sqlalchemy import exists, select

from sandloom.clock import MICROSECONDS
from sandloom.db.clock import now_us
from sandloom.db.engine import Database
from sandloom.db.tables import execs, sandboxes, workers
from sandloom.fleet.records import WorkerStatus
from sandloom.reclaim.policy import ReclaimPolicy
from sandloom.sandboxes import repository as sandbox_rows
from sandloom.sandboxes.states import SandboxStatus

_e, _s, _w = execs.c, sandboxes.c, workers.c


class UnusedQueues:
    """Workers that are dead for longer than their sandboxes are kept for them, and that no open row names: no command
    that has not ended, and no sandbox that is not released."""

    def __init__(self, db: Database, policy: ReclaimPolicy) -> None:
        self._db = db
        self._policy = policy

    def after(self, worker_id: str) -> list[tuple[str, int]]:
        """The next batch by id: (worker, epoch). A worker that comes back has a higher epoch."""
        grace_us = int(self._policy.orphan_release_grace_seconds * MICROSECONDS)
        open_exec = exists().where(_e.open_worker_id == _w.worker_id)
        held = exists().where(sandbox_rows.holds_uid(_w.worker_id), _s.status != SandboxStatus.RELEASED)
        query = (
            select(_w.worker_id, _w.epoch)
            .where(
                _w.worker_id > worker_id,
                _w.status.in_((WorkerStatus.GONE, WorkerStatus.STOPPED)),
                _w.lease_expires_us < now_us() - grace_us,
                ~open_exec,
                ~held,
            )
            .order_by(_w.worker_id)
            .limit(self.batch_size)
        )
        return self._db.read(lambda connection: [(row[0], row[1]) for row in connection.execute(query)])

    @property
    def batch_size(self) -> int:
        return self._policy.batch_size
