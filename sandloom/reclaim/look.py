"""When maintenance looks at a sandbox again. So a run reads what falls due, however many sandboxes there are."""

from __future__ import annotations

from sqlalchemy import ColumnElement, Connection, and_, bindparam, case, or_, select, update

from sandloom.clock import MICROSECONDS
from sandloom.db.clock import now_us
from sandloom.db.engine import Database
from sandloom.db.tables import sandboxes
from sandloom.reclaim.policy import ReclaimPolicy
from sandloom.sandboxes.states import SandboxStatus

_s = sandboxes.c
_S = SandboxStatus

#: What a move forgot to say, or another policy changed, is noticed within this.
LOOK_AGAIN_SECONDS = 6 * 3600
#: Statuses in which a snapshot is not needed.
WITHOUT_SNAPSHOT = (_S.READY, _S.RUNNING, _S.RELEASING, _S.RELEASED)

IS_DUE = _s.look_us <= now_us()


def look_later(db: Database, policy: ReclaimPolicy) -> int:
    """Set when one batch of sandboxes with nothing due is looked at again; returns how many."""
    due_us = _due_us(policy)
    nothing_due = and_(IS_DUE, due_us > now_us())
    query = select(_s.tenant_id, _s.sandbox_id).where(nothing_due).order_by(_s.look_us).limit(policy.batch_size)
    rows = db.read(lambda connection: connection.execute(query).all())
    latest_us = now_us() + LOOK_AGAIN_SECONDS * MICROSECONDS
    # The conditions and the time are judged on the row as it is now, whatever moved meanwhile.
    statement = (
        update(sandboxes)
        .where(_s.tenant_id == bindparam("of_tenant"), _s.sandbox_id == bindparam("of_sandbox"), nothing_due)
        .values(look_us=case((due_us > latest_us, latest_us), else_=due_us))
    )
    keys = sorted(tuple(row) for row in rows)

    def move(connection: Connection) -> None:
        for tenant_id, sandbox_id in keys:
            connection.execute(statement, {"of_tenant": tenant_id, "of_sandbox": sandbox_id})

    if keys:
        db.write(move)
    return len(keys)


def _due_us(policy: ReclaimPolicy) -> ColumnElement[int]:
    """From when on a maintenance step may want the sandbox as it is."""

    def after(column: ColumnElement[int], seconds: float) -> ColumnElement[int]:
        return column + int(seconds * MICROSECONDS)

    never = after(now_us(), LOOK_AGAIN_SECONDS)
    kept_seconds = policy.suspended_retention_seconds
    return case(
        (and_(_s.snapshot.is_not(None), _s.status.in_(WITHOUT_SNAPSHOT)), 0),
        (_s.status == _S.RELEASING, after(_s.status_us, policy.stalled_release_seconds)),
        (_s.status == _S.SUSPENDING, after(_s.status_us, policy.stalled_suspend_seconds)),
        (_s.status == _S.SUSPENDED, after(_s.status_us, kept_seconds) if kept_seconds else never),
        (and_(_s.status == _S.RELEASED, _s.held_uid.is_not(None)), never),
        (_s.status == _S.RELEASED, after(_s.status_us, policy.history_seconds)),
        # A command that runs makes the sandbox active when it ends.
        (or_(_s.status == _S.RUNNING, _s.active_execs > 0), after(now_us(), policy.idle_ttl_seconds)),
        else_=after(_s.last_active_us, policy.idle_ttl_seconds),
    )
