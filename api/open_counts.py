"""How many commands wait and run, by worker."""

from __future__ import annotations

from sqlalchemy import func, select

from sandloom.db import Database
from sandloom.db.tables import execs
from sandloom.execs.states import ExecStatus


def open_counts(db: Database) -> dict[str, tuple[int, int]]:
    """``(queued, running)`` by worker id, of the workers that have any."""
    worker, status = execs.c.open_worker_id, execs.c.status
    query = select(worker, status, func.count()).where(worker.is_not(None)).group_by(worker, status)
    counts: dict[str, dict[str, int]] = {}
    for worker_id, state, number in db.read(lambda connection: connection.execute(query).all()):
        counts.setdefault(worker_id, {})[state] = number
    return {
        worker_id: (by_state.get(ExecStatus.QUEUED, 0), by_state.get(ExecStatus.RUNNING, 0))
        for worker_id, by_state in counts.items()
    }
