"""What workers that are to be empty still have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, select

from sandloom.db.engine import Database
from sandloom.db.tables import sandboxes
from sandloom.sandboxes.states import SandboxStatus

_s = sandboxes.c


@dataclass(frozen=True, slots=True)
class Staying:
    """Numbers of sandboxes: with a command that has not ended, awake without one, asleep on the worker's own disk."""

    running: int = 0
    quiet: int = 0
    asleep: int = 0

    @property
    def none(self) -> bool:
        """Whether the worker may go for good, and nothing is lost with it."""
        return not (self.running or self.quiet or self.asleep)


def staying(db: Database, worker_ids: Sequence[str]) -> dict[str, Staying]:
    """By worker; what sleeps on a shared root stays with nobody."""
    if not worker_ids:
        return {}
    query = (
        select(_s.worker_id, _s.status, _s.storage_mode, func.count().label("number"))
        .where(_s.worker_id.in_(worker_ids), _s.held_uid.is_not(None), _s.status != SandboxStatus.RELEASED)
        .group_by(_s.worker_id, _s.status, _s.storage_mode)
    )
    rows = db.read(lambda connection: connection.execute(query).all())
    return {name: _sum([row for row in rows if row.worker_id == name]) for name in worker_ids}


def _sum(rows: Sequence[Any]) -> Staying:
    def count(*kinds: str) -> int:
        return sum(row.number for row in rows if _kind(row) in kinds)

    return Staying(count("running"), count("quiet"), count("asleep"))


def _kind(row: Any) -> str:
    if row.status == SandboxStatus.RUNNING:
        return "running"
    if row.status == SandboxStatus.SUSPENDED:
        return "asleep" if row.storage_mode == "local" else "shared"
    return "quiet"
