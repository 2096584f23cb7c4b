"""The audit of a sandbox: its generations, who made and ended them, and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Row, select

from sandloom.clock import rfc3339
from sandloom.db.tables import sandbox_history
from sandloom.ids import SandboxKey
from sandloom.sandboxes.states import LIVE

#: Entries of ``history``, newest first; older generations are only counted.
HISTORY_MAX_ENTRIES = 100


def history(connection: Connection, key: SandboxKey) -> Sequence[Row[Any]]:
    """The newest generations, newest first."""
    h = sandbox_history.c
    return connection.execute(
        select(sandbox_history)
        .where(h.tenant_id == key.tenant_id, h.sandbox_id == key.sandbox_id)
        .order_by(h.generation.desc())
        .limit(HISTORY_MAX_ENTRIES)
    ).all()


def audit_of(row: Row[Any], generations: Sequence[Row[Any]], retention_days: int) -> dict[str, Any]:
    """The document that the audit route answers. ``row``: the sandbox with its owner and the database's ``now``."""
    entries = [_entry(generation) for generation in generations]
    current = next((entry for entry in entries if entry["generation"] == row.generation), None)
    released = next((entry for entry in entries if entry["released_at"] is not None), None)
    active = row.status in LIVE and row.ready_us is not None
    return {
        "sandbox_id": row.sandbox_id,
        "workspace_scope_id": row.workspace_scope_id,
        "generation": row.generation,
        "status": row.status,
        "first_created_at": rfc3339(row.created_us),
        "generation_started_at": rfc3339(row.assigned_us),
        "generation_created_by": current["created_by"] if current else "",
        "ready_at": rfc3339(row.ready_us),
        "last_active_at": rfc3339(row.last_active_us),
        "active_duration_ms": (row.now - row.ready_us) // 1000 if active else None,
        "last_released_generation": released["generation"] if released else None,
        "last_released_at": released["released_at"] if released else None,
        "last_release_reason": released["release_reason"] if released else None,
        "last_released_by": released["released_by"] if released else None,
        "last_lifetime_ms": released["lifetime_ms"] if released else None,
        "lifecycle_count": row.lifecycle_count,
        "total_lifetime_ms": row.total_lifetime_ms,
        "history_retention_days": retention_days,
        "history_max_entries": HISTORY_MAX_ENTRIES,
        "history_max_bytes": None,
        "history": entries,
    }


def _entry(generation: Row[Any]) -> dict[str, Any]:
    ended = generation.released_us is not None
    return {
        "generation": generation.generation,
        "started_at": rfc3339(generation.started_us),
        "created_by": generation.created_by,
        "ready_at": rfc3339(generation.ready_us),
        "released_at": rfc3339(generation.released_us),
        "release_reason": generation.release_reason,
        "released_by": generation.released_by,
        "lifetime_ms": (generation.released_us - generation.started_us) // 1000 if ended else None,
    }
