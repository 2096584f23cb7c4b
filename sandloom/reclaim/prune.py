"""Rows that are past their retention. Each step takes one batch, is safe to run twice and safe to miss, and returns how
many rows it removed. A table that grows has a step here; the others say below why they do not grow."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Table, and_, delete, exists, select, tuple_, update
from sqlalchemy.exc import IntegrityError

from sandloom.clock import MICROSECONDS
from sandloom.db import tallies
from sandloom.db.clock import now_us
from sandloom.db.engine import Database
from sandloom.db.tables import (
    api_keys,
    exec_events,
    execs,
    operations,
    sandbox_history,
    sandboxes,
    usage_days,
    workers,
)
from sandloom.db.tallies import Tally
from sandloom.fleet.records import WorkerStatus
from sandloom.ids import ExecKey, SandboxKey
from sandloom.reclaim.look import IS_DUE
from sandloom.reclaim.policy import ReclaimPolicy
from sandloom.sandboxes import repository as sandbox_rows
from sandloom.sandboxes.states import SandboxStatus
from sandloom.tenants import usage

_e, _s, _w, _h, _o = execs.c, sandboxes.c, workers.c, sandbox_history.c, operations.c
_k, _d = api_keys.c, usage_days.c

#: No envelope is accepted for longer than this after its deadline was set, with room to spare.
OPERATIONS_KEPT_SECONDS = 8 * 86_400
#: Events of a long command that go in one transaction.
EVENTS_AT_ONCE = 5000

#: Which step removes the rows of a table.
STEPS: dict[str, str] = {
    "execs": "execs",
    "exec_events": "execs",
    "usage_records": "execs",
    "usage_days": "usage",
    "api_keys": "keys",
    "sandbox_history": "history",
    "operations": "operations",
    "sandboxes": "sandboxes",
    "workers": "workers",
}
BOUNDED: dict[str, str] = {
    "loose_snapshots": "one row for each snapshot that is being made, or that maintenance is about to remove",
    "tallies": "one row for each name in the code",
    "tenants": "one row for each tenant of which an operator said something",
}


class Prune:
    """In batches of ``policy.batch_size``."""

    def __init__(self, db: Database, policy: ReclaimPolicy) -> None:
        self._db = db
        self._policy = policy
        self._kept_us = int(policy.history_seconds * MICROSECONDS)

    def execs(self) -> int:
        """Ended commands with their events; their usage is added to that of their day."""
        query = select(_e.tenant_id, _e.sandbox_id, _e.exec_id, _e.last_seq).where(self._is_past(_e.finished_us))
        rows = self._batch(query)
        return sum(self._remove_exec(ExecKey(*key), last_seq) for *key, last_seq in map(tuple, rows))

    def history(self) -> int:
        """Generations that ended. The one that is current stays, however old."""
        # The first condition is for the index: what was released so long ago began before.
        past = and_(self._is_past(_h.started_us), self._is_past(_h.released_us))
        return self._remove(sandbox_history, past)

    def operations(self) -> int:
        """File calls that no message can repeat any more."""
        return self._remove(operations, _o.seen_us < now_us() - OPERATIONS_KEPT_SECONDS * MICROSECONDS)

    def usage(self) -> int:
        """Days of usage that are past their own retention."""
        oldest = now_us() - self._policy.usage_retention_days * usage.DAY_US
        return self._remove(usage_days, _d.day < oldest // usage.DAY_US)

    def keys(self) -> int:
        """Keys that have not worked for long."""
        return self._remove(api_keys, self._is_past(_k.expires_us))

    def sandboxes(self) -> int:
        """Released sandboxes of which nothing is left: no UID, snapshot, command or audit."""
        query = select(_s.tenant_id, _s.sandbox_id, _s.generation).where(IS_DUE, self._is_released_long_ago())
        rows = self._batch(query.order_by(_s.look_us))
        if not rows:
            return 0
        tallies.raise_to(self._db, Tally.PRUNED_GENERATION, max(row.generation for row in rows))
        return sum(self._remove_sandbox(row) for row in rows)

    def workers(self) -> int:
        """Workers that were declared lost long ago and to which no sandbox belongs."""
        gone = and_(_w.status == WorkerStatus.GONE, self._is_past(_w.lease_expires_us))
        query = select(_w.worker_id, _w.epoch).where(gone)
        found = self._db.read(lambda connection: connection.execute(query).all())
        # By chance, since those that keep a sandbox are found every time.
        rows = random.sample(found, min(len(found), self._policy.batch_size))
        if not rows:
            return 0
        tallies.raise_to(self._db, Tally.PRUNED_EPOCH, max(row.epoch for row in rows))
        return sum(self._remove_worker(delete(workers).where(_w.worker_id == row.worker_id, gone)) for row in rows)

    def uids(self) -> int:
        """Free the UIDs of released sandboxes whose worker is long gone. On a local root: only that worker could give
        them out again, and it cleans up when it starts. Those of a shared root wait for an operator."""
        gone = select(_w.worker_id).where(_w.status == WorkerStatus.GONE, self._is_past(_w.lease_expires_us))
        query = select(_s.tenant_id, _s.sandbox_id, _s.generation, _s.worker_id, _s.worker_epoch).where(
            _s.worker_id.in_(gone), _s.held_uid.is_not(None), _s.status == SandboxStatus.RELEASED,
            _s.storage_mode == "local",
        )  # fmt: skip
        rows = self._batch(query)
        return sum(self._db.write(partial(_free_uid, row=row)) for row in rows)

    # --- inside ---

    def _is_past(self, column: ColumnElement[int]) -> ColumnElement[bool]:
        return column < now_us() - self._kept_us

    def _is_released_long_ago(self) -> ColumnElement[bool]:
        return and_(
            _s.status == SandboxStatus.RELEASED,
            self._is_past(_s.status_us),
            _s.held_uid.is_(None),
            _s.snapshot.is_(None),
            ~exists().where(_e.tenant_id == _s.tenant_id, _e.sandbox_id == _s.sandbox_id),
            ~exists().where(_h.tenant_id == _s.tenant_id, _h.sandbox_id == _s.sandbox_id),
        )

    def _batch(self, query: Any) -> Sequence[Row[Any]]:
        found: Sequence[Row[Any]] = self._db.read(lambda c: c.execute(query.limit(self._policy.batch_size)).all())
        return found

    def _remove(self, table: Table, past: ColumnElement[bool]) -> int:
        columns = table.primary_key.columns
        keys = [tuple(row) for row in self._batch(select(*columns).where(past))]
        if not keys:
            return 0
        statement = delete(table).where(tuple_(*columns).in_(keys), past)
        return self._db.write(lambda connection: connection.execute(statement).rowcount)

    def _remove_exec(self, key: ExecKey, last_seq: int) -> int:
        """The record goes with the last of its events: until then a reader is told where the rest begins."""
        events = and_(*_of(exec_events, key))
        for seq in range(EVENTS_AT_ONCE, last_seq, EVENTS_AT_ONCE):
            earlier = delete(exec_events).where(events, exec_events.c.seq <= seq)
            self._db.write(lambda connection, statement=earlier: connection.execute(statement))  # type: ignore[misc]

        def remove(connection: Connection) -> int:
            connection.execute(delete(exec_events).where(events))
            usage.put_away(connection, key)
            return connection.execute(delete(execs).where(*_of(execs, key))).rowcount

        try:
            return self._db.write(remove)
        except IntegrityError:
            return self._db.write(remove)  # another began the day's sums meanwhile

    def _remove_sandbox(self, row: Any) -> int:
        """What began meanwhile has another generation, and a sandbox that is made anew begins after all of them."""
        statement = delete(sandboxes).where(
            sandbox_rows.is_key(SandboxKey(row.tenant_id, row.sandbox_id)),
            _s.generation == row.generation,
            self._is_released_long_ago(),
        )
        return self._db.write(lambda connection: connection.execute(statement).rowcount)

    def _remove_worker(self, statement: Any) -> int:
        try:
            return self._db.write(lambda connection: int(connection.execute(statement).rowcount))
        except IntegrityError:
            return 0  # a sandbox still belongs to it, if only one that sleeps in a snapshot


def _of(table: Table, key: ExecKey) -> tuple[ColumnElement[bool], ...]:
    c = table.c
    return c.tenant_id == key.tenant_id, c.sandbox_id == key.sandbox_id, c.exec_id == key.exec_id


def _free_uid(connection: Connection, row: Any) -> int:
    freed = connection.execute(
        update(sandboxes)
        .where(
            sandbox_rows.is_key(SandboxKey(row.tenant_id, row.sandbox_id)),
            _s.generation == row.generation,
            _s.worker_id == row.worker_id,
            _s.worker_epoch == row.worker_epoch,
            _s.status == SandboxStatus.RELEASED,
        )
        .values(held_uid=None, look_us=0)
    )
    return freed.rowcount
