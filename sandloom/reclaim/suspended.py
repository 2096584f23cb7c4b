"""Suspended sandboxes, as maintenance sees them: who is due, what was cut short, what was kept for long enough."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, and_, update

from sandloom.clock import MICROSECONDS
from sandloom.db.clock import now_us
from sandloom.db.engine import Database
from sandloom.db.tables import sandboxes, workers
from sandloom.ids import SandboxKey
from sandloom.reclaim.look import IS_DUE, WITHOUT_SNAPSHOT
from sandloom.reclaim.policy import ReclaimPolicy
from sandloom.sandboxes import repository as sandbox_rows
from sandloom.sandboxes.records import Route
from sandloom.sandboxes.states import SandboxStatus, Workspace

_s, _w = sandboxes.c, workers.c


class Suspended:
    """Safe to run twice and safe to miss; in batches of ``policy.batch_size``."""

    def __init__(self, db: Database, policy: ReclaimPolicy) -> None:
        self._db = db
        self._policy = policy

    def due(self) -> list[Route]:
        """Sandboxes that idled too long and are to be suspended: their workers must be told."""
        if self._policy.idle_action != "suspend":
            return []
        idle_us = int(self._policy.idle_ttl_seconds * MICROSECONDS)
        rows = self._sandboxes(
            _s.status == SandboxStatus.READY,
            _s.active_execs == 0,
            _s.last_active_us < now_us() - idle_us,
            _w.lease_expires_us > now_us(),
            _w.epoch == _s.worker_epoch,
        )
        return [self._route(row) for row in rows]

    def cut_short(self) -> list[Route]:
        """Sandboxes that are SUSPENDING for a while although their worker lives: tell it again."""
        stalled_us = int(self._policy.stalled_suspend_seconds * MICROSECONDS)
        rows = self._sandboxes(
            _s.status == SandboxStatus.SUSPENDING,
            _s.status_us < now_us() - stalled_us,
            _w.lease_expires_us > now_us(),
            _w.epoch == _s.worker_epoch,
        )
        return [self._route(row) for row in rows]

    def begin_releases(self) -> list[Route]:
        """Move what is suspended for longer than the retention to RELEASING; their workers must be told."""
        if not self._policy.suspended_retention_seconds:
            return []
        kept_us = int(self._policy.suspended_retention_seconds * MICROSECONDS)
        old = and_(_s.status == SandboxStatus.SUSPENDED, _s.status_us < now_us() - kept_us)
        rows = [*self._sandboxes(old), *self._rows(_s.snapshot.is_not(None), _s.held_uid.is_(None), old)]
        return [self._route(row) for row in rows if self._db.write(partial(_expire, row=row))]

    def unneeded_snapshots(self) -> list[Route]:
        """Sandboxes that are awake or gone and still name a snapshot."""
        return [self._route(row) for row in self._rows(_s.snapshot.is_not(None), _s.status.in_(WITHOUT_SNAPSHOT))]

    def forget_snapshot(self, route: Route) -> bool:
        """The object store has it no more."""
        statement = (
            update(sandboxes)
            .where(
                sandbox_rows.is_key(route.key), _s.snapshot == route.snapshot, _s.status.in_(WITHOUT_SNAPSHOT)
            )
            .values(snapshot=None)
        )  # fmt: skip
        return self._db.write(lambda connection: bool(connection.execute(statement).rowcount == 1))

    def _route(self, row: Row[Any]) -> Route:
        return sandbox_rows.to_route(row, int(self._policy.idle_ttl_seconds))

    def _sandboxes(self, *conditions: ColumnElement[bool]) -> Sequence[Row[Any]]:
        return self._rows(_s.held_uid.is_not(None), *conditions)

    def _rows(self, *conditions: ColumnElement[bool]) -> Sequence[Row[Any]]:
        query = sandbox_rows.route_query().where(IS_DUE, *conditions).order_by(_s.status_us)
        return self._db.read(lambda connection: connection.execute(query.limit(self._policy.batch_size)).all())


def _expire(connection: Connection, row: Row[Any]) -> bool:
    key = SandboxKey(row.tenant_id, row.sandbox_id)
    released = sandbox_rows.released_values(Workspace.NEW)
    releasing = {"status": SandboxStatus.RELEASING, "status_us": now_us(), "look_us": 0}
    moved = connection.execute(
        update(sandboxes)
        .where(
            sandbox_rows.is_key(key),
            _s.generation == row.generation,
            _s.status == SandboxStatus.SUSPENDED,
            _s.status_us == row.status_us,
            _s.held_uid.is_(None) if row.held_uid is None else _s.held_uid == row.held_uid,
        )
        .values(released if row.held_uid is None else releasing)
    )
    if moved.rowcount != 1:
        return False
    if row.held_uid is not None:
        sandbox_rows.take_slot(connection, row.worker_id)
    sandbox_rows.close_history(connection, key, row.generation, "suspended_too_long", "maintenance")
    return True
