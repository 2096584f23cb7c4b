"""Leases: who lives, by the database's clock."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Update, bindparam, or_, select, update

from sandloom.clock import MICROSECONDS
from sandloom.db.clock import now_us
from sandloom.db.engine import Database
from sandloom.db.prepared import Query, Write
from sandloom.db.tables import workers
from sandloom.errors import WorkerNotFound
from sandloom.fleet import repository
from sandloom.fleet.records import Worker, WorkerStatus

_w = workers.c

_RENEW = Write(
    update(workers)
    .where(
        _w.worker_id == bindparam("of_worker"),
        _w.epoch == bindparam("of_epoch"),
        or_(_w.status == WorkerStatus.ACTIVE, _w.status == WorkerStatus.DRAINING),
    )
    .values(
        lease_expires_us=now_us() + bindparam("ttl_us"),
        renewals=_w.renewals + 1,
        load=bindparam("new_load"),
        short_of=bindparam("new_short_of"),
    ),
    name="renew",
)
_DRAINED_BY = Query(select(_w.drain_us).where(_w.worker_id == bindparam("of_worker")), "drain")


@dataclass(frozen=True, slots=True)
class Lease:
    """What a lease watcher looks at: ``renewals`` moves while the worker lives."""

    worker_id: str
    epoch: int
    renewals: int


class Fleet:
    """Workers as the database knows them. Registration is ``sandloom.reclaim.adoption``."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def renew(
        self, worker_id: str, epoch: int, lease_ttl_seconds: float, load: Mapping[str, Any], short_of: str | None = None
    ) -> bool:
        """Prolong the lease from the database's now. False: a newer epoch lives, or this one was declared lost.

        ``short_of``: why the worker takes no new sandboxes until a renewal that names nothing.
        """
        values = {
            "of_worker": worker_id,
            "of_epoch": epoch,
            "ttl_us": int(lease_ttl_seconds * MICROSECONDS),
            "new_load": json.dumps(dict(load)),
            "new_short_of": short_of,
        }
        return self._db.write(lambda connection: _RENEW.run(connection, values) == 1)

    def unregister(self, worker_id: str, epoch: int) -> None:
        """A clean end: nothing more is placed here, and what waits is ended or taken up by the next start."""
        statement = (
            update(workers)
            .where(_w.worker_id == worker_id, _w.epoch == epoch, _w.status != WorkerStatus.GONE)
            .values(status=WorkerStatus.STOPPED, lease_expires_us=now_us(), renewals=_w.renewals + 1)
        )
        self._db.write(lambda connection: connection.execute(statement))

    def drain(self, worker_id: str) -> Worker:
        """No new sandboxes from now on, also after a restart; the worker empties itself. Raises WorkerNotFound."""
        return self._set_drain(update(workers).where(_w.drain_us.is_(None)).values(drain_us=now_us()), worker_id)

    def undrain(self, worker_id: str) -> Worker:
        """The end of ``drain``; what has moved out does not come back by itself. Raises WorkerNotFound."""
        return self._set_drain(update(workers).values(drain_us=None), worker_id)

    def _set_drain(self, statement: Update, worker_id: str) -> Worker:
        self._db.write(lambda connection: connection.execute(statement.where(_w.worker_id == worker_id)))
        worker = self.get(worker_id)
        if worker is None:
            raise WorkerNotFound
        return worker

    def is_draining(self, worker_id: str) -> bool:
        """Whether the operator wants the worker empty."""
        rows = self._db.read(lambda connection: _DRAINED_BY.all(connection, {"of_worker": worker_id}))
        return any(row.drain_us is not None for row in rows)

    def get(self, worker_id: str) -> Worker | None:
        row = self._db.read(lambda connection: repository.fetch(connection, worker_id))
        return repository.to_worker(row) if row is not None else None

    def list_workers(self, limit: int = 1000) -> list[Worker]:
        """Workers that are not declared lost, by id."""
        query = repository.worker_query().where(_w.status != WorkerStatus.GONE).order_by(_w.worker_id).limit(limit)
        return self._db.read(lambda connection: [repository.to_worker(row) for row in connection.execute(query)])

    def leases(self) -> Sequence[Lease]:
        """Every lease that may still matter."""
        query = select(_w.worker_id, _w.epoch, _w.renewals).where(_w.status != WorkerStatus.GONE)
        return self._db.read(lambda connection: [Lease(*row) for row in connection.execute(query)])
