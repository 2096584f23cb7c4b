"""Sandboxes from resolve to release. Every move is one conditional write that says whether it won."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import ColumnElement, Connection, TextClause, func, select
from sqlalchemy.exc import IntegrityError

from sandloom.db.engine import Database
from sandloom.db.tables import CREATED, sandboxes
from sandloom.errors import (
    FilePathLocked,
    NoWorkerAvailable,
    OperationSeen,
    SandboxBusy,
    SandboxNotFound,
    SandboxSuspended,
    ScopeMismatch,
    StaleRoute,
    SuspendInProgress,
    WorkerLost,
)  # fmt: skip
from sandloom.ids import SandboxKey
from sandloom.sandboxes import assignment, repository, statements
from sandloom.sandboxes import lifecycle_statements as lifecycle
from sandloom.sandboxes.audit import audit_of, history
from sandloom.sandboxes.diagnose import owner_lives, refusal
from sandloom.sandboxes.placement import Loads, Profile, no_loads
from sandloom.sandboxes.races import Race, win
from sandloom.sandboxes.records import Fence, Route
from sandloom.sandboxes.states import OPEN, SandboxStatus
from sandloom.sandboxes.totals import Totals
from sandloom.settings import Settings
from sandloom.tenants.service import Tenants

_s = sandboxes.c


@dataclass(frozen=True, slots=True)
class SandboxPolicy:
    """What the deployment decides about sandboxes."""

    declared_hash: str
    idle_ttl_seconds: int = 1800
    orphan_release_grace_seconds: int = 300
    history_retention_days: int = 15
    environment: str = "local"

    @classmethod
    def of(cls, settings: Settings) -> SandboxPolicy:
        return cls(
            declared_hash=settings.profile_hash,
            idle_ttl_seconds=settings.idle_ttl_seconds,
            orphan_release_grace_seconds=settings.orphan_release_grace_seconds,
            history_retention_days=settings.history_retention_days,
            environment=settings.environment,
        )

    def profile(self, profile_id: str) -> Profile:
        """What workers of this deployment serve under that name."""
        return Profile(profile_id, self.declared_hash, self.environment)


class Sandboxes:
    """The service over rows; it asks no worker and sends no message."""

    def __init__(
        self, db: Database, policy: SandboxPolicy, loads: Loads = no_loads, tenants: Tenants | None = None
    ) -> None:
        self._db = db
        self._policy = policy
        self._tenants = tenants or Tenants(db)
        self._totals = Totals()
        self._loads = loads

    # --- control plane ---

    def resolve(self, tenant_id: str, sandbox_id: str, workspace_scope_id: str, profile_id: str, by: str) -> Route:
        """The current route: the living one, or a new generation on a worker with a free slot.

        Raises ScopeMismatch, NoWorkerAvailable, WorkerLost (the owner is silent and may return), SandboxBusy (being
        released), SandboxSuspended, SuspendInProgress, QuotaExceeded (for one that does not live).
        """
        key, ask = SandboxKey(tenant_id, sandbox_id), self._tenants.asks(tenant_id)

        def attempt(connection: Connection, race: Race) -> Route:
            excess = ask.sandbox(connection)
            row = repository.fetch(connection, key, lock=True)
            if excess is not None and (row is None or row.status == SandboxStatus.RELEASED):
                raise excess
            if row is None:
                return self._assign(connection, key, None, workspace_scope_id, profile_id, by, race)
            if row.workspace_scope_id != workspace_scope_id:
                raise ScopeMismatch
            status = SandboxStatus(row.status)
            if status is SandboxStatus.RELEASED:
                return self._assign(connection, key, row, workspace_scope_id, profile_id, by, race)
            if status is SandboxStatus.RELEASING:
                raise SandboxBusy("The sandbox is being released; resolve it again in a moment.")
            if status is SandboxStatus.SUSPENDING:
                raise SuspendInProgress
            if status is SandboxStatus.SUSPENDED:
                raise SandboxSuspended
            if not owner_lives(row) or row.owner_epoch != row.worker_epoch:
                raise WorkerLost(
                    "The owner of this sandbox is silent; it may return, else the sandbox can be resolved elsewhere "
                    f"after {self._policy.orphan_release_grace_seconds} s.",
                    retry_after_seconds=5,
                )
            statements.KEEP_ALIVE.run(connection, {**statements.of_key(key), "now": row.now})
            return self._route(row)

        return win(self._db, attempt)

    def get(self, key: SandboxKey) -> Route:
        row = self._db.read(lambda connection: repository.fetch(connection, key))
        if row is None:
            raise SandboxNotFound
        return self._route(row)

    def current(self, key: SandboxKey, generation: int) -> Route:
        """The route, if a call that names this generation may go on; else the error that says why not."""
        row = self._db.read(lambda connection: repository.fetch(connection, key))
        if row is None:
            raise SandboxNotFound
        error = refusal(row, generation)
        if error is not None:
            raise error
        return self._route(row)

    def list(
        self, tenant_id: str, status: str | None, workspace_scope_id: str | None, search: str | None, limit: int,
        offset: int,
    ) -> tuple[list[Route], int]:  # fmt: skip
        """A page of the tenant's sandboxes, newest first, and how many there are in all (see ``Totals``)."""
        conditions: list[ColumnElement[bool] | TextClause] = [_s.tenant_id == tenant_id, CREATED]
        if status is not None:
            conditions.append(_s.status == status)
        if workspace_scope_id is not None:
            conditions.append(_s.workspace_scope_id == workspace_scope_id)
        if search:
            conditions.append(_s.sandbox_id.contains(search, autoescape=True))

        def page(connection: Connection) -> tuple[list[Route], int]:
            counted = select(func.count()).select_from(sandboxes).where(*conditions)
            asked = tenant_id, status, workspace_scope_id, search
            total = self._totals.of(asked, lambda: connection.execute(counted).scalar_one())
            query = repository.route_query().where(*conditions).order_by(_s.created_us.desc(), _s.sandbox_id)
            rows = connection.execute(query.limit(limit).offset(offset)).all()
            return [self._route(row) for row in rows], total

        return self._db.read(page)

    def audit(self, key: SandboxKey) -> dict[str, Any]:
        """What became of the sandbox so far, in the form of the audit route."""

        def look(connection: Connection) -> dict[str, Any]:
            row = repository.fetch(connection, key)
            if row is None:
                raise SandboxNotFound
            return audit_of(row, history(connection, key), self._policy.history_retention_days)

        return self._db.read(look)

    def begin_release(self, key: SandboxKey, generation: int | None, by: str, reason: str) -> Route:
        """Move to RELEASING, or leave RELEASING and RELEASED as they are. The slot and the UID stay held; a suspended
        sandbox takes a slot again for the work that is left, also where there is none."""

        def move(connection: Connection) -> Route:
            row = repository.fetch(connection, key, lock=True)
            if row is None:
                raise SandboxNotFound
            if generation is not None and row.generation != generation:
                raise StaleRoute
            if row.status in (SandboxStatus.RELEASING, SandboxStatus.RELEASED):
                return self._route(row)
            if row.status == SandboxStatus.SUSPENDED:
                if row.held_uid is None:
                    repository.release_now(connection, row, reason, by)
                    return replace(self._route(row), status=SandboxStatus.RELEASED, expires_us=None)
                repository.take_slot(connection, row.worker_id)
            values = {"of_generation": row.generation, "now": row.now}
            lifecycle.BEGIN_RELEASE.run(connection, {**statements.of_key(key), **values})
            repository.close_history(connection, key, row.generation, reason, by)
            return replace(self._route(row), status=SandboxStatus.RELEASING, expires_us=None)

        return self._db.write(move)

    # --- the owner ---

    def mark_ready(self, fence: Fence, workspace: str | None = None) -> Route:
        """ASSIGNED to READY (RUNNING when commands wait already); READY and RUNNING stay. Raises StaleRoute.

        ``workspace``: what the disk showed, where that differs from what the assignment expected.
        """

        def move(connection: Connection) -> Route:
            of_fence = statements.of_fence(fence)
            if workspace:
                lifecycle.READY_WITH.run(connection, {**of_fence, "found": workspace})
            else:
                lifecycle.READY.run(connection, of_fence)
            row = repository.fetch(connection, fence.key)
            if row is None or repository.fence_of(row) != fence or row.status not in OPEN:
                raise StaleRoute
            lifecycle.READY_HISTORY.run(connection, {**of_fence, "now": row.now})
            return self._route(row)

        return self._db.write(move)

    def touch(self, fence: Fence, op_id: str | None = None) -> Route:
        """The compare-and-set before a file call; an ``op_id`` is claimed in the same transaction.

        Raises StaleRoute (also from SUSPENDED states), FilePathLocked while a lifecycle command runs, OperationSeen.
        """

        def claim(connection: Connection) -> Route:
            moved = statements.TOUCH.run(connection, statements.of_fence(fence))
            row = repository.fetch(connection, fence.key)
            if moved != 1:
                if row is not None and row.generation == fence.generation and row.exclusive_exec_id is not None:
                    raise FilePathLocked("A lifecycle command is running in the sandbox; wait for it or cancel it.")
                raise StaleRoute
            assert row is not None
            if op_id is not None:
                statements.CLAIM_OPERATION.run(
                    connection, {"tenant_id": fence.key.tenant_id, "op_id": op_id, "seen_us": row.now}
                )
            return self._route(row)

        try:
            return self._db.write(claim)
        except IntegrityError:
            raise OperationSeen from None

    def hold(self, fence: Fence) -> None:
        """The compare-and-set with which the service takes a quiet sandbox for itself; no command and no file call
        begins until ``let_go``. Raises StaleRoute, SandboxBusy."""

        def move(connection: Connection) -> None:
            if statements.HOLD.run(connection, statements.of_fence(fence)) == 1:
                return
            row = repository.fetch(connection, fence.key)
            if row is None or repository.fence_of(row) != fence or row.status not in OPEN:
                raise StaleRoute
            raise SandboxBusy

        self._db.write(move)

    def let_go(self, fence: Fence) -> bool:
        """The end of ``hold``; False when the sandbox has moved on meanwhile."""
        return self._db.write(lambda connection: statements.LET_GO.run(connection, statements.of_fence(fence)) == 1)

    def releasing(self, worker_id: str, epoch: int) -> Iterator[tuple[SandboxKey, int]]:
        """Sandboxes, with their generations, that this owner has yet to release."""
        values = {"of_worker": worker_id, "of_epoch": epoch}
        rows = self._db.read(lambda connection: lifecycle.RELEASING.all(connection, values))
        return ((SandboxKey(row.tenant_id, row.sandbox_id), row.generation) for row in rows)

    def finish_release(self, fence: Fence) -> bool:
        """RELEASING to RELEASED once nothing of the sandbox is left on the worker: slot and UID are given back.

        False: another owner's, another state, or a command has not ended yet.
        """

        def move(connection: Connection) -> bool:
            moved = lifecycle.FINISH_RELEASE.run(connection, statements.of_fence(fence))
            if moved == 1:
                repository.give_back(connection, fence.worker_id)
            return moved == 1

        return self._db.write(move)

    # --- inside ---

    def _route(self, row: Any) -> Route:
        return repository.to_route(row, self._policy.idle_ttl_seconds)

    def _assign(
        self, connection: Connection, key: SandboxKey, row: Any | None, scope: str, profile_id: str, by: str,
        race: Race,
    ) -> Route:  # fmt: skip
        profile = self._policy.profile(profile_id)
        worker = repository.place(connection, repository.candidates(connection, profile), self._loads, race)
        if worker is None:
            raise NoWorkerAvailable.of(profile_id)
        uid = repository.free_uid(connection, worker, race.scatter_uids)
        assignment.assign(connection, key, row, worker, uid, by, scope=scope, profile_id=profile_id)
        assigned = repository.fetch(connection, key)
        assert assigned is not None
        return self._route(assigned)
