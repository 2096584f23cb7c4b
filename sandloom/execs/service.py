"""Commands from admission to receipt. The exec row is the outbox: whoever finds it QUEUED may ring again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, and_, func, select, tuple_, update
from sqlalchemy.exc import IntegrityError

from sandloom.clock import MICROSECONDS
from sandloom.contracts.ports import Head
from sandloom.db.clock import now_us
from sandloom.db.engine import Database
from sandloom.db.tables import RECENT, execs, sandboxes, workers
from sandloom.errors import CommitUnknown, ExecNotFound, SandboxNotFound, StaleRoute, Unavailable
from sandloom.execs import repository, statements
from sandloom.execs.admission import Admission, ExecPolicy, check_same_request, limits_exceeded, refusal_to_admit
from sandloom.execs.moves import moves_of
from sandloom.execs.records import CancelResult, EventPage, Exec, ExecRequest, OpenExec, Outcome
from sandloom.execs.repository import LostRace
from sandloom.execs.states import TERMINAL, ExecStatus, Reason
from sandloom.ids import ExecKey, SandboxKey
from sandloom.sandboxes import repository as sandbox_rows
from sandloom.sandboxes.records import Route
from sandloom.tenants.service import Tenants

_e, _s, _w = execs.c, sandboxes.c, workers.c
_KEY = (_e.tenant_id, _e.sandbox_id, _e.exec_id)
_ATTEMPTS = 8
#: How often an admission whose commit is unknown is sent again: it finds its own row, if there is one.
_DOUBTS = 2
#: Of one page of events.
MAX_PAGE_BYTES = 1 << 20
#: A doorbell that was lost is sent again after this long; then twice as long each time.
FIRST_RING_AGAIN_SECONDS = 5
#: A worker writes a task's result at once after the row; a lease, which may live on after its worker, is far shorter.
ENDED_SECONDS = 600


class Execs:
    """The service over rows; it runs nothing and sends no message."""

    def __init__(
        self, db: Database, policy: ExecPolicy, idle_ttl_seconds: int = 1800, tenants: Tenants | None = None
    ) -> None:
        self._db = db
        self._tenants = tenants or Tenants(db)
        self._moves = moves_of(db.dialect)
        self._policy = policy
        self._idle_ttl_seconds = idle_ttl_seconds

    # --- control plane ---

    def admit(
        self, key: SandboxKey, generation: int, request: ExecRequest, task_id: str | None = None
    ) -> tuple[Exec, Route, bool]:
        """Accept a command: the row is QUEUED and the sandbox RUNNING, in one transaction.

        The same ``exec_id`` again gives the row that is there, whatever its generation, and False. Raises
        SandboxNotFound, StaleRoute, WorkerLost, SandboxSuspended, SandboxNotReady (connect first), ScopeBusy,
        ParallelLimit, QueueFull, ExecIdConflict, LimitsExceeded, QuotaExceeded, CommitUnknown (it may have been
        accepted).
        """
        admission = Admission(
            ExecKey(*key, request.exec_id), generation, request,
            request.timeout_seconds or self._policy.default_timeout_seconds, task_id,
            FIRST_RING_AGAIN_SECONDS * MICROSECONDS, self._policy,
        )  # fmt: skip
        beyond, ask = limits_exceeded(request.limits, self._policy), self._tenants.asks(key.tenant_id)

        def attempt(connection: Connection) -> tuple[Exec, Route, bool]:
            excess = beyond or ask.command(connection)
            if excess is None:
                row, admitted = self._moves.admit(connection, admission)
            else:
                row, admitted = repository.admission(connection, admission), False
            if row is None:
                raise SandboxNotFound
            route = sandbox_rows.to_route(row, self._idle_ttl_seconds)
            if admitted:
                return repository.queued_exec(row, admission), route, True
            existing = repository.fetch(connection, admission.key) if row.known else None
            if existing is not None:
                check_same_request(existing.request_hash, request)
                return repository.to_exec(existing), route, False
            error = excess or refusal_to_admit(row, generation, request.exec_scope, self._policy)
            raise error or LostRace

        doubts = 0
        write = self._db.write if ask.bounded else self._db.write_one
        for _ in range(_ATTEMPTS):
            try:
                admitted, route, created = write(attempt)
            except (IntegrityError, LostRace):
                continue  # the same exec or scope, or another command, was admitted between the look and the write
            except CommitUnknown:
                doubts += 1
                if doubts > _DOUBTS:
                    raise
            except Unavailable as error:
                raise (CommitUnknown() if doubts else error) from error
            else:
                # What is found after a doubt may be our own, of which nobody was told: that is for the caller to do.
                return admitted, route, created or doubts > 0
        raise Unavailable("Many commands are being admitted to this sandbox at once; repeat the call.")

    def get(self, key: ExecKey, output: bool = False) -> Exec:
        """The record; with ``output`` also what the command wrote so far."""

        def look(connection: Connection) -> Exec:
            row = repository.fetch(connection, key)
            if row is None:
                raise ExecNotFound
            # Up to three events are QUEUED, RUNNING and the end: nothing was written.
            empty = row.status in TERMINAL and row.last_seq <= 3
            if not output:
                return repository.to_exec(row)
            return repository.to_exec(row, (b"", b"") if empty else repository.output(connection, key))

        return self._db.read(look)

    def list(self, key: SandboxKey, limit: int, offset: int) -> tuple[list[Exec], int]:
        """A page of the sandbox's execs, newest first and without their input, and how many there are in all.

        Raises SandboxNotFound.
        """
        mine = and_(_e.tenant_id == key.tenant_id, _e.sandbox_id == key.sandbox_id, RECENT)

        def page(connection: Connection) -> tuple[list[Exec], int]:
            total = connection.execute(select(func.count()).select_from(execs).where(mine)).scalar_one()
            if not total and sandbox_rows.fetch(connection, key) is None:
                raise SandboxNotFound
            query = repository.without_input().where(mine).order_by(_e.queued_us.desc(), _e.exec_id)
            rows = connection.execute(query.limit(limit).offset(offset))
            return [repository.to_exec(row) for row in rows], total

        return self._db.read(page)

    def events(self, key: ExecKey, after: int, limit: int = 1000, max_bytes: int = MAX_PAGE_BYTES) -> EventPage:
        """Events with ``seq > after``, dense and in order: ``limit`` of them, or fewer when these reach
        ``max_bytes``. Raises ExecNotFound."""

        def look(connection: Connection) -> EventPage:
            # The row first: when it is terminal, every event is there for the second statement. Of those that came
            # after the row nothing is told, or the last one would be seen before the end is.
            row = statements.PROGRESS.one_or_none(connection, statements.of_key(key))
            if row is None:
                raise ExecNotFound
            there = min(limit, row.last_seq - after)
            found = tuple(repository.events_after(connection, key, after, there, max_bytes)) if there > 0 else ()
            first = found[0].seq if found and found[0].seq > after + 1 else 1
            return EventPage(found, row.last_seq, row.status in TERMINAL, first)

        return self._db.read(look)

    def heads(self, keys: Sequence[ExecKey]) -> Sequence[tuple[ExecKey, Head]]:
        """How far each of these is, of those that are there."""
        columns = (_e.tenant_id, _e.sandbox_id, _e.exec_id)
        wanted = tuple_(*columns).in_([tuple(key) for key in keys])
        query = select(*columns, _e.last_seq, _e.status).where(wanted)
        rows = self._db.read(lambda connection: connection.execute(query).all()) if keys else []
        return [(ExecKey(*row[:3]), Head(row.last_seq, row.status in TERMINAL)) for row in rows]

    def cancel(self, key: ExecKey, generation: int | None = None) -> CancelResult:
        """QUEUED ends here; RUNNING is marked, and its worker must act. A terminal one stays as it is."""
        outcome = Outcome(ExecStatus.CANCELLED, Reason.CANCELLED, detail="Cancelled before it was started.")

        def attempt(connection: Connection) -> CancelResult:
            row = repository.fetch(connection, key)
            if row is None:
                raise ExecNotFound
            if generation is not None:
                _check_generation(connection, key.sandbox, generation)
            status = ExecStatus(row.status)
            if status is ExecStatus.QUEUED:
                repository.end(connection, key, status, row.generation, row.last_seq, [], outcome)
            elif status is ExecStatus.RUNNING:
                connection.execute(
                    update(execs)
                    .where(repository.is_key(key), _e.status == ExecStatus.RUNNING, _e.cancel_us.is_(None))
                    .values(cancel_us=now_us())
                )
            after = repository.fetch(connection, key)
            assert after is not None
            runs = after.status == ExecStatus.RUNNING
            return CancelResult(
                repository.to_exec(after), cancelled=status is ExecStatus.QUEUED or runs, ring_worker=runs
            )

        for _ in range(_ATTEMPTS):
            try:
                return self._db.write(attempt)
            except LostRace:
                continue
        raise Unavailable

    # --- the owner ---

    def claim(self, key: ExecKey, generation: int, worker_id: str, worker_epoch: int) -> Exec | None:
        """QUEUED to RUNNING, once, by the current owner only. None: somebody else did, or there is nothing to do."""

        values = {
            **_owned(key, worker_id, worker_epoch),
            "of_generation": generation,
            "of_queued_within_us": self._policy.max_queued_seconds * MICROSECONDS,
        }

        row = self._db.write_one(lambda connection: self._moves.claim(connection, key, values))
        return repository.to_exec(row) if row is not None else None

    def append(
        self,
        key: ExecKey,
        worker_id: str,
        worker_epoch: int,
        expected_seq: int,
        events: Sequence[tuple[str, bytes]],
    ) -> bool:
        """Add events after ``expected_seq`` in one transaction. False: the exec is no longer ours, or seq moved on."""
        owned = _owned(key, worker_id, worker_epoch)
        return self._db.write_one(lambda c: self._moves.append(c, key, owned, expected_seq, events))

    def finish(
        self,
        key: ExecKey,
        worker_id: str,
        worker_epoch: int,
        expected_seq: int,
        events: Sequence[tuple[str, bytes]],
        outcome: Outcome,
    ) -> bool:
        """RUNNING to terminal: last events, terminal event, usage and the sandbox's counters in one transaction."""
        owned = _owned(key, worker_id, worker_epoch)
        try:
            self._db.write_one(lambda c: self._moves.finish(c, key, owned, expected_seq, events, outcome))
        except LostRace:
            return False
        return True

    def refuse(self, key: ExecKey, worker_id: str, worker_epoch: int, outcome: Outcome) -> bool:
        """End a QUEUED exec that its owner cannot start."""

        def move(connection: Connection) -> None:
            row = repository.fetch(connection, key)
            if row is None or (row.worker_id, row.worker_epoch) != (worker_id, worker_epoch):
                raise LostRace
            repository.end(connection, key, ExecStatus.QUEUED, row.generation, row.last_seq, [], outcome)

        try:
            self._db.write(move)
        except LostRace:
            return False
        return True

    def open_counts(self) -> dict[str, tuple[int, int]]:
        """``(queued, running)`` by worker id, of the workers that have any."""
        query = (
            select(_e.open_worker_id, _e.status, func.count())
            .where(_e.open_worker_id.is_not(None))
            .group_by(_e.open_worker_id, _e.status)
        )
        counts: dict[str, dict[str, int]] = {}
        for worker_id, status, number in self._db.read(lambda connection: connection.execute(query).all()):
            counts.setdefault(worker_id, {})[status] = number
        return {
            worker_id: (by_status.get(ExecStatus.QUEUED, 0), by_status.get(ExecStatus.RUNNING, 0))
            for worker_id, by_status in counts.items()
        }

    def open_for(self, worker_id: str, worker_epoch: int, limit: int = 1000) -> Sequence[OpenExec]:
        """RUNNING and QUEUED execs of that owner, in the order of ``statements.OPEN_OF_OWNER``."""
        values = {"of_worker": worker_id, "of_epoch": worker_epoch, "at_most": limit}
        rows = self._db.read(lambda connection: statements.OPEN_OF_OWNER.all(connection, values))
        return [
            OpenExec(ExecKey(*row[:3]), row.generation, ExecStatus(row.status), row.cancel_us, row.queued_us)
            for row in rows
        ]

    def ended_tasks(self, worker_id: str, limit: int = 10_000) -> Sequence[tuple[ExecKey, str]]:
        """Direct execs that ended shortly before the worker's last sign of life, or after it, with their tasks."""
        last_us = select(_w.lease_expires_us).where(_w.worker_id == worker_id).scalar_subquery()
        query = (
            select(*_KEY, _e.task_id)
            .where(_e.finished_us >= last_us - ENDED_SECONDS * MICROSECONDS)
            .where(_e.worker_id == worker_id, _e.task_id.is_not(None))
            .order_by(_e.finished_us.desc())
            .limit(limit)
        )
        rows = self._db.read(lambda connection: connection.execute(query).all())
        return [(ExecKey(*key), task_id) for *key, task_id in rows]

    def queued_of(self, key: SandboxKey, worker_id: str) -> Sequence[ExecKey]:
        """Execs of the sandbox that wait for its owner."""
        values = {"of_worker": worker_id, "of_tenant": key.tenant_id, "of_sandbox": key.sandbox_id}
        rows = self._db.read(lambda connection: statements.QUEUED_OF_SANDBOX.all(connection, values))
        return [ExecKey(*key, row.exec_id) for row in rows]


def _owned(key: ExecKey, worker_id: str, worker_epoch: int) -> dict[str, Any]:
    return {**statements.of_key(key), "of_worker": worker_id, "of_epoch": worker_epoch}


def _check_generation(connection: Connection, key: SandboxKey, generation: int) -> None:
    query = select(_s.generation).where(sandbox_rows.is_key(key))
    if connection.execute(query).scalar_one_or_none() != generation:
        raise StaleRoute
