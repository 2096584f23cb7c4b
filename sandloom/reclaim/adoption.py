"""A worker starts: a new epoch, and what becomes of the sandboxes of its earlier ones. One transaction."""

from __future__ import annotations

from sqlalchemy import ColumnElement, Connection, and_, case, select, update
from sqlalchemy.exc import IntegrityError

from sandloom.clock import MICROSECONDS
from sandloom.db.clock import now_us
from sandloom.db.engine import Database
from sandloom.db.tables import execs, sandboxes, workers
from sandloom.db.tallies import Tally, value_of
from sandloom.errors import WorkerIdInUse
from sandloom.execs import repository as exec_rows
from sandloom.execs.records import Outcome
from sandloom.execs.states import ExecStatus, Reason
from sandloom.fleet import repository as worker_rows
from sandloom.fleet.records import NodeInfo, Registration
from sandloom.ids import ExecKey, SandboxKey
from sandloom.sandboxes import lifecycle_statements as sandbox_statements
from sandloom.sandboxes import repository as sandbox_rows
from sandloom.sandboxes.statements import SERVICE_HOLD
from sandloom.sandboxes.states import ALIVE, LIVE, SandboxStatus, Workspace

_e, _s, _w = execs.c, sandboxes.c, workers.c

LOST_RUNNING = Outcome(
    ExecStatus.WORKER_LOST, Reason.WORKER_LOST, error="SANDBOX_WORKER_LOST",
    detail="The worker ended while the command was running.",
)  # fmt: skip
LOST_QUEUED = Outcome(
    ExecStatus.WORKER_LOST, Reason.WORKER_LOST, error="SANDBOX_WORKER_LOST",
    detail="The worker was lost before the command was started.",
)  # fmt: skip


def register(db: Database, node: NodeInfo) -> Registration:
    """Give the worker its next epoch. Raises WorkerIdInUse while that id, or a command of it, may live elsewhere.

    Sandboxes whose directories are there go on under the next generation, with the commands that were still QUEUED.
    The others are released as lost, so that the next resolve says so. RUNNING commands of earlier epochs are over: the
    caller has ended their processes before. UIDs of sandboxes that were taken from a lost worker are free again.
    """

    def move(connection: Connection) -> Registration:
        row = worker_rows.fetch(connection, node.worker_id, lock=True)
        if row is not None:
            # A partitioned owner's commands outlive its lease until its spawner's fence ends them.
            dead_after_us = row.lease_expires_us + int(node.fence_grace_seconds * MICROSECONDS)
            lives = row.status in ("ACTIVE", "DRAINING") and dead_after_us > row.now
            if lives and not (node.takeover and row.root_id == node.root_id):
                raise WorkerIdInUse
        pruned = select(value_of(Tally.PRUNED_EPOCH))
        epoch = 1 + (row.epoch if row is not None else connection.execute(pruned).scalar_one())
        worker_rows.store(connection, node, epoch, new=row is None)
        _lock(connection, node.worker_id)
        lost = _give_up_lost(connection, node, epoch)
        _end_running(connection, node.worker_id, epoch)
        kept = _adopt(connection, node, epoch)
        sandbox_rows.free_quarantined(connection, node.worker_id)
        connection.execute(
            update(workers)
            .where(_w.worker_id == node.worker_id)
            .values(reserved=sandbox_rows.slots_held(node.worker_id))
        )
        return Registration(epoch, kept, lost)

    for _ in range(3):
        try:
            return db.write(move)
        except IntegrityError:
            continue  # another start of the same id made the row first; it now holds the lease
    raise WorkerIdInUse


def _lock(connection: Connection, worker_id: str) -> None:
    """Hold everything that the worker owns still: an admission or a claim of the earlier epoch is then either seen by
    the statements that follow, or finds that it has lost."""
    live = (*ALIVE, SandboxStatus.RELEASING)
    owned = select(_s.sandbox_id).where(sandbox_rows.holds_uid(worker_id), _s.status.in_(live))
    connection.execute(owned.order_by(_s.tenant_id, _s.sandbox_id).with_for_update()).all()
    waiting = select(_e.exec_id).where(_e.open_worker_id == worker_id)
    connection.execute(waiting.order_by(_e.tenant_id, _e.sandbox_id, _e.exec_id).with_for_update()).all()


def _earlier(worker_id: str, epoch: int) -> ColumnElement[bool]:
    return and_(sandbox_rows.holds_uid(worker_id), _s.worker_epoch != epoch)


def _give_up_lost(connection: Connection, node: NodeInfo, epoch: int) -> int:
    """Release what this disk does not hold; returns how many sandboxes that were, beside those being released."""
    rows = connection.execute(
        select(
            _s.tenant_id, _s.sandbox_id, _s.generation, _s.root_id, _s.ready_us, _s.status, _s.snapshot, _s.workspace
        ).where(_earlier(node.worker_id, epoch), _s.status.in_((*ALIVE, SandboxStatus.RELEASING)))
    ).all()
    lost = 0
    for row in rows:
        key = SandboxKey(row.tenant_id, row.sandbox_id)
        releasing = row.status == SandboxStatus.RELEASING
        here = row.root_id == node.root_id and (row.ready_us is None or releasing or key in node.present)
        if here:
            continue
        if sandbox_rows.is_only_stored(row) or (row.status == SandboxStatus.SUSPENDED and row.snapshot is not None):
            asleep = {"status": SandboxStatus.SUSPENDED, "held_uid": None, "look_us": 0}
            connection.execute(update(sandboxes).where(sandbox_rows.is_key(key)).values(asleep))
            continue
        end_open(connection, key)
        workspace = Workspace.NEW if releasing else Workspace.LOST
        connection.execute(
            update(sandboxes).where(sandbox_rows.is_key(key)).values(sandbox_rows.released_values(workspace))
        )
        sandbox_rows.close_history(connection, key, row.generation, "workspace_lost", node.worker_id)
        lost += not releasing
    return lost


def _end_running(connection: Connection, worker_id: str, epoch: int) -> None:
    rows = connection.execute(
        select(_e.tenant_id, _e.sandbox_id, _e.exec_id, _e.generation, _e.last_seq).where(
            _e.open_worker_id == worker_id, _e.status == ExecStatus.RUNNING, _e.worker_epoch != epoch
        )
    ).all()
    for row in rows:
        key = ExecKey(row.tenant_id, row.sandbox_id, row.exec_id)
        exec_rows.end(connection, key, ExecStatus.RUNNING, row.generation, row.last_seq, [], LOST_RUNNING)


def _adopt(connection: Connection, node: NodeInfo, epoch: int) -> int:
    """Everything left of earlier epochs is on this disk: it moves to the new epoch under the next generation, and to
    what the worker serves by now."""
    worker_id = node.worker_id
    earlier = _earlier(worker_id, epoch)
    # A suspend that was cut short never happened.
    live = and_(earlier, _s.status.in_((*LIVE, SandboxStatus.SUSPENDING)))
    connection.execute(
        update(execs)
        .where(_e.open_worker_id == worker_id, _e.worker_epoch != epoch, _e.status == ExecStatus.QUEUED)
        .values(generation=_e.generation + 1, worker_epoch=epoch, ring_us=now_us())
    )
    sandbox_rows.roll_history(connection, live, 1, "worker_restarted", worker_id)
    kept = connection.execute(
        update(sandboxes)
        .where(live)
        .values(
            generation=_s.generation + 1,
            worker_epoch=epoch,
            profile_hash=node.effective_hash,
            status=SandboxStatus.ASSIGNED,
            workspace=case((_s.ready_us.is_(None), _s.workspace), else_=Workspace.KEPT.value),
            active_execs=sandbox_statements.open_exec_count(),
            exclusive_exec_id=case((_s.exclusive_exec_id == SERVICE_HOLD, None), else_=_s.exclusive_exec_id),
            total_lifetime_ms=sandbox_statements.lifetime_ms(),
            assigned_us=now_us(),
            status_us=now_us(),
            look_us=0,
        )
    )
    connection.execute(
        update(sandboxes)
        .where(earlier, _s.status == SandboxStatus.RELEASING)
        .values(generation=_s.generation + 1, worker_epoch=epoch)
    )
    return kept.rowcount


def end_open(connection: Connection, key: SandboxKey) -> None:
    """End every command of the sandbox that has not ended as lost. The caller holds the sandbox's row."""
    rows = connection.execute(
        select(_e.exec_id, _e.generation, _e.status, _e.last_seq)
        .where(_e.tenant_id == key.tenant_id, _e.sandbox_id == key.sandbox_id, _e.open_worker_id.is_not(None))
        .order_by(_e.exec_id)
        .with_for_update()
    ).all()
    for row in rows:
        outcome = LOST_RUNNING if row.status == ExecStatus.RUNNING else LOST_QUEUED
        exec_rows.end(connection, ExecKey(*key, row.exec_id), row.status, row.generation, row.last_seq, [], outcome)
