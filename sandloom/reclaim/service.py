"""Maintenance over rows. Each method is safe to run twice and safe to miss; none waits for a worker.

Methods that end execs return their keys and last seq, so that the caller can publish them on the bus.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, and_, or_, select, update

from sandloom.clock import MICROSECONDS
from sandloom.db.clock import now_us
from sandloom.db.engine import Database
from sandloom.db.tables import execs, sandboxes, workers
from sandloom.db.tallies import Tally, add
from sandloom.execs import repository as exec_rows
from sandloom.execs import statements
from sandloom.execs.records import Outcome
from sandloom.execs.repository import LostRace
from sandloom.execs.states import ExecStatus, Reason
from sandloom.fleet.records import WorkerStatus
from sandloom.fleet.service import Lease
from sandloom.ids import ExecKey, SandboxKey
from sandloom.reclaim.adoption import LOST_QUEUED, LOST_RUNNING, end_open
from sandloom.reclaim.look import IS_DUE, look_later
from sandloom.reclaim.policy import (
    RELEASE_AGAIN_CAP_SECONDS,
    ReclaimPolicy,
    release_again_ages_seconds,
    ring_again_delay_seconds,
)
from sandloom.sandboxes import repository as sandbox_rows
from sandloom.sandboxes.records import Route
from sandloom.sandboxes.states import LIVE, SandboxStatus, Workspace

_e, _s, _w = execs.c, sandboxes.c, workers.c

#: Sandboxes that one run counts, or those of one worker.
RECOUNTED = 300

QUEUE_TIMEOUT = Outcome(
    ExecStatus.TIMED_OUT, Reason.QUEUE_TIMEOUT, error="SANDBOX_QUEUE_TIMEOUT",
    detail="The command waited in the queue longer than allowed and was never started.",
)  # fmt: skip

Ended = tuple[ExecKey, int]


class Reclaim:
    """The decisions of ``policy`` carried out in batches of ``policy.batch_size``."""

    def __init__(self, db: Database, policy: ReclaimPolicy) -> None:
        self._db = db
        self._policy = policy

    def count(self, counts: Mapping[Tally, int]) -> None:
        """Add to what maintenance did, for all processes that do it."""
        add(self._db, counts)

    # --- workers ---

    def declare_lost(self, lease: Lease) -> bool:
        """Mark a worker GONE whose lease a watcher saw lapse; False when it was renewed after all."""
        statement = (
            update(workers)
            .where(
                _w.worker_id == lease.worker_id,
                _w.epoch == lease.epoch,
                _w.renewals == lease.renewals,
                _w.status != WorkerStatus.GONE,
            )
            .values(status=WorkerStatus.GONE)
        )
        return self._db.write(lambda connection: connection.execute(statement).rowcount == 1)

    def end_lost_execs(self) -> list[Ended]:
        """End what GONE workers left open."""
        rows = self._open_execs(_w.status == WorkerStatus.GONE)
        return [
            ended
            for row in rows
            if (ended := self._end(row, LOST_RUNNING if row.status == ExecStatus.RUNNING else LOST_QUEUED))
        ]

    def release_orphans(self) -> int:
        """Release sandboxes whose worker is GONE for longer than the release grace: their workspace is lost.

        Those whose files others reach, on a shared root or in a snapshot, sleep until somebody wakes them there.
        """
        grace_us = int(self._policy.orphan_release_grace_seconds * MICROSECONDS)
        rows = self._sandboxes(
            _s.status.in_((*LIVE, SandboxStatus.SUSPENDING, SandboxStatus.RELEASING)),
            _w.status == WorkerStatus.GONE,
            _w.lease_expires_us < now_us() - grace_us,
        )
        return sum(self._db.write(lambda connection, row=row: _release_orphan(connection, row)) for row in rows)  # type: ignore[misc]

    def recount_slots(self) -> list[tuple[str, int, int]]:
        """Correct ``reserved`` where sandboxes hold another number: (worker, was, is), each of them worth an alarm.

        A run counts about ``RECOUNTED`` sandboxes, of workers by chance: of all where there are not more.
        """
        counted = self._some_workers()
        query = select(_w.worker_id).where(
            _w.worker_id.in_(counted), _w.reserved != sandbox_rows.slots_held(_w.worker_id)
        )
        drifted = self._db.read(lambda connection: connection.execute(query).scalars().all())
        corrected = []
        for worker_id in drifted:
            change = self._db.write(lambda c, name=worker_id: sandbox_rows.recount(c, name))  # type: ignore[misc]
            if change is not None:
                corrected.append((worker_id, *change))
        return corrected

    def _some_workers(self) -> list[str]:
        query = select(_w.worker_id, _w.reserved)
        rows = list(self._db.read(lambda connection: connection.execute(query).all()))
        random.shuffle(rows)
        chosen: list[str] = []
        sandboxes_left = RECOUNTED
        for row in rows:
            if chosen and row.reserved > sandboxes_left:
                break
            chosen.append(row.worker_id)
            sandboxes_left -= row.reserved
        return chosen

    # --- sandboxes ---

    def begin_idle_releases(self) -> list[Route]:
        """Move sandboxes that idled too long to RELEASING; their workers must be told. Those that are to be suspended
        instead (``Suspended.due``) are not among them."""
        idle = [SandboxStatus.ASSIGNED]
        if self._policy.idle_action == "release":
            idle.append(SandboxStatus.READY)
        idle_us = int(self._policy.idle_ttl_seconds * MICROSECONDS)
        rows = self._sandboxes(
            IS_DUE,
            _s.status.in_(idle),
            _s.active_execs == 0,
            _s.last_active_us < now_us() - idle_us,
            self._is_not_held(),
            _w.lease_expires_us > now_us(),
            _w.epoch == _s.worker_epoch,
        )
        release = partial(_idle_release, not_held=self._is_not_held())
        return [self._route(row) for row in rows if self._db.write(release(row))]

    def _is_not_held(self) -> ColumnElement[bool]:
        """By the service, for a template or a copy; a hold that is too old was left behind."""
        hold_us = int(max(self._policy.longest_hold_seconds, self._policy.idle_ttl_seconds) * MICROSECONDS)
        return or_(_s.exclusive_exec_id.is_(None), _s.last_active_us < now_us() - hold_us)

    def stalled_releases(self) -> list[Route]:
        """Sandboxes that are RELEASING for a while although their worker lives: tell it again, less and less often."""
        window_seconds = 2 * self._policy.maintenance_interval_seconds
        age_us = now_us() - _s.status_us
        due = [
            and_(age_us >= int(first * MICROSECONDS), age_us < int(end * MICROSECONDS))
            for first, end in release_again_ages_seconds(self._policy.stalled_release_seconds, window_seconds)
        ]
        hour_us = RELEASE_AGAIN_CAP_SECONDS * MICROSECONDS
        late = and_(age_us >= hour_us, age_us % hour_us < int(window_seconds * MICROSECONDS))
        rows = self._sandboxes(
            IS_DUE,
            _s.status == SandboxStatus.RELEASING,
            or_(*due, late),
            _w.lease_expires_us > now_us(),
            _w.epoch == _s.worker_epoch,
        )
        return [self._route(row) for row in rows]

    def look_later(self) -> int:
        """One batch of sandboxes with nothing due is left alone until something can be. The last step of a run."""
        return look_later(self._db, self._policy)

    # --- execs ---

    def end_queue_timeouts(self) -> list[Ended]:
        """End what waited longer than ``max_queued_seconds``."""
        waited_us = int(self._policy.max_queued_seconds * MICROSECONDS)
        rows = self._open_execs(_e.status == ExecStatus.QUEUED, _e.queued_us < now_us() - waited_us)
        return [ended for row in rows if (ended := self._end(row, QUEUE_TIMEOUT))]

    def due_rings(self) -> list[tuple[str, ExecKey, int]]:
        """Doorbells to send again: (queue, exec, generation). Each is due later the next time."""
        rows = self._open_execs(_e.status == ExecStatus.QUEUED, _e.ring_us <= now_us(), _w.lease_expires_us > now_us())
        due = []
        for row in rows:
            delay_us = ring_again_delay_seconds(row.rings + 1) * MICROSECONDS
            statement = (
                update(execs)
                .where(exec_rows.is_key(_key(row)), _e.status == ExecStatus.QUEUED, _e.rings == row.rings)
                .values(rings=_e.rings + 1, ring_us=now_us() + delay_us)
            )
            if self._db.write(_rowcount_is_one(statement)):
                due.append((row.queue, _key(row), row.generation))
        return due

    # --- inside ---

    def _route(self, row: Row[Any]) -> Route:
        return sandbox_rows.to_route(row, int(self._policy.idle_ttl_seconds))

    def _sandboxes(self, *conditions: ColumnElement[bool]) -> Sequence[Row[Any]]:
        query = sandbox_rows.route_query().where(_s.held_uid.is_not(None), *conditions).order_by(_s.last_active_us)
        return self._db.read(lambda connection: connection.execute(query.limit(self._policy.batch_size)).all())

    def _open_execs(self, *conditions: ColumnElement[bool]) -> Sequence[Row[Any]]:
        query: Select[Any] = (
            select(_e.tenant_id, _e.sandbox_id, _e.exec_id, _e.generation, _e.status, _e.last_seq, _e.rings, _w.queue)
            .join_from(execs, workers, _e.open_worker_id == _w.worker_id)
            .where(*conditions)
            .order_by(_e.queued_us)
            .limit(self._policy.batch_size)
        )
        return self._db.read(lambda connection: connection.execute(query).all())

    def _end(self, row: Row[Any], outcome: Outcome) -> Ended | None:
        key = _key(row)

        def move(connection: Connection) -> int:
            # Not the one of the list: an owner that still writes would win every time.
            now = statements.PROGRESS.one_or_none(connection, statements.of_key(key))
            if now is None:
                raise LostRace
            exec_rows.end(connection, key, row.status, row.generation, now.last_seq, [], outcome)
            return int(now.last_seq) + 1

        try:
            return key, self._db.write(move)
        except LostRace:
            return None


def _key(row: Any) -> ExecKey:
    return ExecKey(row.tenant_id, row.sandbox_id, row.exec_id)


def _rowcount_is_one(statement: Any) -> Callable[[Connection], bool]:
    return lambda connection: bool(connection.execute(statement).rowcount == 1)


def _release_orphan(connection: Connection, row: Row[Any]) -> bool:
    key = SandboxKey(row.tenant_id, row.sandbox_id)
    moved = connection.execute(
        update(sandboxes)
        .where(
            sandbox_rows.is_key(key),
            _s.generation == row.generation,
            _s.worker_epoch == row.worker_epoch,
            _s.status == row.status,
        )
        .values(status=SandboxStatus.RELEASING, status_us=now_us(), look_us=0)
    )
    if moved.rowcount != 1:
        return False
    end_open(connection, key)
    if sandbox_rows.is_only_stored(row):
        return _sleep(connection, row, None)
    if row.storage_mode == "shared" and row.ready_us is not None and row.status != SandboxStatus.RELEASING:
        return _sleep(connection, row, row.held_uid)
    workspace = Workspace.NEW if row.status == SandboxStatus.RELEASING else Workspace.LOST
    values = sandbox_rows.released_values(workspace)
    del values["held_uid"]  # nobody knows what the worker left behind: the UID waits for its return
    connection.execute(update(sandboxes).where(sandbox_rows.is_key(key)).values(values))
    sandbox_rows.close_history(connection, key, row.generation, "worker_lost", "maintenance")
    sandbox_rows.give_back(connection, row.worker_id)
    return True


def _sleep(connection: Connection, row: Row[Any], held_uid: int | None) -> bool:
    values = {
        "status": SandboxStatus.SUSPENDED, "look_us": 0, "held_uid": held_uid, "active_execs": 0,
        "exclusive_exec_id": None,
    }  # fmt: skip
    key = SandboxKey(row.tenant_id, row.sandbox_id)
    connection.execute(update(sandboxes).where(sandbox_rows.is_key(key)).values(status_us=now_us(), **values))
    sandbox_rows.give_back(connection, row.worker_id)
    return True


def _idle_release(row: Row[Any], not_held: ColumnElement[bool]) -> Callable[[Connection], bool]:
    key = SandboxKey(row.tenant_id, row.sandbox_id)

    def move(connection: Connection) -> bool:
        moved = connection.execute(
            update(sandboxes)
            .where(
                sandbox_rows.is_key(key),
                _s.generation == row.generation,
                _s.status == row.status,
                _s.last_active_us == row.last_active_us,
                _s.active_execs == 0,
                not_held,
            )
            .values(status=SandboxStatus.RELEASING, status_us=now_us(), look_us=0)
        )
        if moved.rowcount == 1:
            sandbox_rows.close_history(connection, key, row.generation, "idle", "maintenance")
        return moved.rowcount == 1

    return move
