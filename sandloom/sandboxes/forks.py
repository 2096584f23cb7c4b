"""Copies of sandboxes, over rows. The source's row is never changed: whoever copies holds the source meanwhile."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection

from sandloom.db.engine import Database
from sandloom.errors import NoWorkerAvailable, SandboxExists, SandboxNotFound, ScopeMismatch
from sandloom.ids import SandboxKey
from sandloom.sandboxes import assignment, loose, repository
from sandloom.sandboxes.races import Race, win
from sandloom.sandboxes.records import Route
from sandloom.sandboxes.service import SandboxPolicy
from sandloom.sandboxes.states import SandboxStatus, Workspace
from sandloom.tenants.service import Ask, Tenants


class Forks:
    """The service over rows; it asks no worker and sends no message."""

    def __init__(self, db: Database, policy: SandboxPolicy, tenants: Tenants | None = None) -> None:
        self._db = db
        self._tenants = tenants or Tenants(db)
        self._policy = policy

    def demand_free(self, copy: SandboxKey, scope: str) -> None:
        """Raises what ``begin`` and ``keep`` would raise now: SandboxExists, ScopeMismatch."""
        self._db.read(lambda connection: _free(connection, copy, scope, lock=False))

    def begin(self, source: Route, copy: SandboxKey, scope: str, by: str) -> Route:
        """The copy's row: ASSIGNED beside the source, told that it has files. Until they are there, a worker that dies
        leaves a sandbox that says ``lost``.

        Raises SandboxExists, ScopeMismatch, QuotaExceeded, NoWorkerAvailable (the source's worker is full).
        """
        ask = self._tenants.asks(copy.tenant_id)

        def attempt(connection: Connection, race: Race) -> Route:
            row = _room(connection, ask, copy, scope)
            worker = repository.reserve(connection, source.worker_id, source.worker_epoch)
            if worker is None:
                raise NoWorkerAvailable("The worker of the sandbox is full.", retry_after_seconds=5)
            uid = repository.free_uid(connection, worker, race.scatter_uids)
            assignment.assign(
                connection, copy, row, worker, uid, by, scope=scope, profile_id=source.profile_id,
                workspace=Workspace.KEPT.value,
            )  # fmt: skip
            return self._made(connection, copy)

        return win(self._db, attempt)

    def keep(self, source: Route, copy: SandboxKey, scope: str, snapshot: str, by: str) -> Route:
        """The copy's row: SUSPENDED, its files being in the object store under the copy's own name already, as was
        announced to ``LooseSnapshots``.

        Raises SandboxNotFound (the source), SandboxExists, ScopeMismatch, QuotaExceeded, ObjectStoreUnavailable: it
        took too long.
        """
        ask = self._tenants.asks(copy.tenant_id)

        def attempt(connection: Connection, race: Race) -> Route:
            row = _room(connection, ask, copy, scope)
            original = repository.fetch(connection, source.key)
            if original is None:
                raise SandboxNotFound
            assignment.put_to_sleep(connection, copy, row, original, by, scope=scope, snapshot=snapshot)
            if row is not None and row.snapshot is not None:
                loose.let_loose(connection, copy, row.snapshot)
            loose.take_back(connection, copy, snapshot)
            return self._made(connection, copy)

        return win(self._db, attempt)

    def _made(self, connection: Connection, copy: SandboxKey) -> Route:
        row = repository.fetch(connection, copy)
        assert row is not None
        return repository.to_route(row, self._policy.idle_ttl_seconds)


def _room(connection: Connection, ask: Ask, copy: SandboxKey, scope: str) -> Any | None:
    """``_free``, for a tenant that may have one more."""
    excess = ask.sandbox(connection)
    row = _free(connection, copy, scope)
    if excess is not None:
        raise excess
    return row


def _free(connection: Connection, copy: SandboxKey, scope: str, lock: bool = True) -> Any | None:
    """The row of a released sandbox of that id, None when there was none."""
    row = repository.fetch(connection, copy, lock=lock)
    if row is None:
        return None
    if row.workspace_scope_id != scope:
        raise ScopeMismatch
    if row.status != SandboxStatus.RELEASED:
        raise SandboxExists
    return row
