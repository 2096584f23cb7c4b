"""After a backup was restored: what is open in it may have ended since, and routes newer than it are about."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, case, select, update

from sandloom.db.clock import now_us
from sandloom.db.engine import Database
from sandloom.db.tables import execs, sandboxes, workers
from sandloom.execs import repository as exec_rows
from sandloom.execs.records import Outcome
from sandloom.execs.states import ExecStatus, Reason
from sandloom.fleet.records import WorkerStatus
from sandloom.ids import ExecKey
from sandloom.sandboxes import lifecycle_statements
from sandloom.sandboxes import repository as sandbox_rows
from sandloom.sandboxes.states import ALIVE, LIVE, SandboxStatus

_e, _s, _w = execs.c, sandboxes.c, workers.c

#: More generations and epochs than can have been given out since the backup.
STEPS = 1_000_000
_BY = "db fence"
RESTORED = Outcome(
    ExecStatus.WORKER_LOST, Reason.WORKER_LOST, error="SANDBOX_WORKER_LOST",
    detail="The database was restored from a backup; what became of the command since is not known.",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Fenced:
    """How many rows were ended, and how many moved on."""

    execs: int
    sandboxes: int
    workers: int


def fence(db: Database) -> Fenced:
    """End every open command, and leave every generation and epoch that anybody may hold behind. One transaction.

    Sandboxes keep their owners: each goes on when its worker starts again, as after any restart.
    """
    return db.write(_fence)


def _fence(connection: Connection) -> Fenced:
    moved_workers = connection.execute(
        update(workers).values(
            epoch=_w.epoch + STEPS,
            status=case((_w.status == WorkerStatus.GONE, _w.status), else_=WorkerStatus.STOPPED.value),
            renewals=_w.renewals + 1,
            lease_expires_us=now_us(),
        )
    )
    connection.execute(select(_s.sandbox_id).order_by(_s.tenant_id, _s.sandbox_id).with_for_update()).all()
    ended = _end_open(connection)
    live = _s.status.in_(LIVE)
    sandbox_rows.roll_history(connection, _s.status.in_(ALIVE), STEPS, "backup_restored", _BY)
    connection.execute(
        update(sandboxes)
        .where(live)
        .values(
            status=SandboxStatus.ASSIGNED,
            total_lifetime_ms=lifecycle_statements.lifetime_ms(),
            assigned_us=now_us(),
            last_active_us=now_us(),  # the time since the backup was not idle
            status_us=now_us(),
            look_us=0,
        )
    )
    moved = connection.execute(update(sandboxes).values(generation=_s.generation + STEPS))
    return Fenced(ended, moved.rowcount, moved_workers.rowcount)


def _end_open(connection: Connection) -> int:
    rows = connection.execute(
        select(_e.tenant_id, _e.sandbox_id, _e.exec_id, _e.generation, _e.status, _e.last_seq)
        .where(_e.open_worker_id.is_not(None))
        .order_by(_e.tenant_id, _e.sandbox_id, _e.exec_id)
        .with_for_update()
    ).all()
    for row in rows:
        key = ExecKey(row.tenant_id, row.sandbox_id, row.exec_id)
        exec_rows.end(connection, key, row.status, row.generation, row.last_seq, [], RESTORED)
    return len(rows)
