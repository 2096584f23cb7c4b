"""Every statement on ``workers`` that is about leases."""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import Connection, Row, Select, insert, select, update

from sandloom.clock import MICROSECONDS
from sandloom.db.clock import now_us
from sandloom.db.tables import workers
from sandloom.fleet.records import ISOLATION_RANK, NodeInfo, Worker, WorkerStatus

_w = workers.c


def to_worker(row: Row[Any]) -> Worker:
    status = WorkerStatus(row.status)
    if status is WorkerStatus.ACTIVE and (row.drain_us, row.short_of) != (None, None):
        status = WorkerStatus.DRAINING
    return Worker(
        worker_id=row.worker_id,
        epoch=row.epoch,
        status=status,
        queue=row.queue,
        data_endpoint=row.data_endpoint,
        public_key=row.public_key,
        profile_id=row.profile_id,
        declared_hash=row.declared_hash,
        effective_hash=row.effective_hash,
        isolation_rank=row.isolation_rank,
        storage_mode=row.storage_mode,
        root_id=row.root_id,
        capacity=row.capacity,
        exec_slots=row.exec_slots,
        reserved=row.reserved,
        renewals=row.renewals,
        lease_expires_us=row.lease_expires_us,
        registered_us=row.registered_us,
        now_us=row.now,
        node=json.loads(row.node),
        load=json.loads(row.load),
        drain_us=row.drain_us,
        short_of=row.short_of,
    )


def worker_query() -> Select[Any]:
    return select(*workers.columns, now_us().label("now"))


def fetch(connection: Connection, worker_id: str, *, lock: bool = False) -> Row[Any] | None:
    query = worker_query().where(_w.worker_id == worker_id)
    return connection.execute(query.with_for_update() if lock else query).one_or_none()


def store(connection: Connection, node: NodeInfo, epoch: int, *, new: bool) -> None:
    """Write the worker's row for its new epoch, ``new`` if there was none; ``reserved`` is left to the caller. A drain
    outlasts a restart."""
    values = {
        "epoch": epoch,
        "status": WorkerStatus.ACTIVE,
        "queue": node.queue,
        "data_endpoint": node.data_endpoint,
        "public_key": node.public_key,
        "profile_id": node.profile_id,
        "declared_hash": node.declared_hash,
        "effective_hash": node.effective_hash,
        "isolation_rank": ISOLATION_RANK[node.isolation_level],
        "storage_mode": node.storage_mode,
        "root_id": node.root_id,
        "uid_start": node.uid_start,
        "uid_end": node.uid_end,
        "capacity": node.capacity,
        "exec_slots": node.exec_slots,
        "lease_expires_us": now_us() + int(node.lease_ttl_seconds * MICROSECONDS),
        "registered_us": now_us(),
        "node": json.dumps(dict(node.node)),
        "load": "{}",
        "environment": node.environment,
        "short_of": node.short_of,
    }
    if new:
        connection.execute(
            insert(workers).values(worker_id=node.worker_id, reserved=0, renewals=0, next_uid=node.uid_start, **values)
        )
        return
    connection.execute(
        update(workers)
        .where(_w.worker_id == node.worker_id, _w.epoch == epoch - 1)
        .values(renewals=_w.renewals + 1, **values)
    )
    outside = (_w.next_uid < node.uid_start) | (_w.next_uid > node.uid_end)
    connection.execute(update(workers).where(_w.worker_id == node.worker_id, outside).values(next_uid=node.uid_start))
