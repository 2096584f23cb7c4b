"""A sandbox gets its next generation: a row that is made, or one that was released and is used again."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection

from sandloom.ids import SandboxKey
from sandloom.sandboxes import lifecycle_statements as lifecycle
from sandloom.sandboxes import repository, statements
from sandloom.sandboxes.states import SandboxStatus, Workspace


def assign(
    connection: Connection, key: SandboxKey, row: Any | None, worker: Any, uid: int, by: str, *, scope: str,
    profile_id: str, workspace: str | None = None,
) -> None:  # fmt: skip
    """ASSIGNED to a worker of which ``repository.reserve`` took a slot. ``workspace``: what the generation is told that
    it finds; without it what ``row``, the released one, has to tell. Raises IntegrityError when another got the UID, or
    made the row, first."""
    told = workspace or (row.workspace if row is not None else Workspace.NEW.value)
    _store(
        connection, key, row, by, worker, worker.first_generation,
        {
            "workspace_scope_id": scope, "profile_id": profile_id, "profile_hash": worker.effective_hash,
            "status": SandboxStatus.ASSIGNED.value, "worker_epoch": worker.epoch, "sandbox_uid": uid, "held_uid": uid,
            "workspace": told, "snapshot": row.snapshot if row is not None else None,
        },
    )  # fmt: skip


def put_to_sleep(
    connection: Connection, key: SandboxKey, row: Any | None, source: Any, by: str, *, scope: str, snapshot: str
) -> None:
    """SUSPENDED, and nowhere but in the object store. ``source``: the row it is a copy of. Raises IntegrityError."""
    _store(
        connection, key, row, by, source, repository.first_generation(connection),
        {
            "workspace_scope_id": scope, "profile_id": source.profile_id, "profile_hash": source.profile_hash,
            "status": SandboxStatus.SUSPENDED.value, "worker_epoch": source.worker_epoch,
            "sandbox_uid": source.sandbox_uid, "held_uid": None, "workspace": Workspace.RESTORED.value,
            "snapshot": snapshot,
        },
    )  # fmt: skip


def _store(
    connection: Connection, key: SandboxKey, row: Any | None, by: str, at: Any, first_generation: int,
    values: dict[str, Any],
) -> None:  # fmt: skip
    """``at``: where, with the database's time as ``now``."""
    now = at.now
    values |= {
        "worker_id": at.worker_id, "root_id": at.root_id, "storage_mode": at.storage_mode, "active_execs": 0,
        "exclusive_exec_id": None, "assigned_us": now, "ready_us": None, "last_active_us": now, "status_us": now,
    }  # fmt: skip
    if row is None:
        generation = first_generation
        first = {"generation": generation, "lifecycle_count": 1, "total_lifetime_ms": 0, "created_us": now}
        lifecycle.CREATE.run(connection, {**key._asdict(), **first, **values})
    else:
        generation = row.generation + 1
        again = {"of_generation": row.generation, **{f"new_{name}": value for name, value in values.items()}}
        lifecycle.ASSIGN_AGAIN.run(connection, {**statements.of_key(key), **again})
    repository.open_history(connection, key, generation, at.worker_id, now, by)
