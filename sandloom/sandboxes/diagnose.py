"""Why a call on a sandbox is refused. Pure: one decision for routes, admission and workers."""

from __future__ import annotations

from typing import Protocol

from sandloom.errors import SandboxSuspended, SandloomError, StaleRoute, WorkerLost
from sandloom.sandboxes.states import SandboxStatus

#: Statuses of a worker that can hold its lease.
LIVING = ("ACTIVE", "DRAINING")


class OwnedRow(Protocol):
    """A sandbox row joined with its owner (see ``statements.ROUTES``)."""

    @property
    def status(self) -> str: ...
    @property
    def generation(self) -> int: ...
    @property
    def worker_epoch(self) -> int: ...
    @property
    def owner_epoch(self) -> int: ...
    @property
    def owner_status(self) -> str: ...
    @property
    def owner_lease_us(self) -> int: ...
    @property
    def now(self) -> int: ...


def refusal(row: OwnedRow, generation: int) -> SandloomError | None:
    """The error for a call that names ``generation``, or None when the sandbox takes calls.

    A generation that is not current comes before everything else, since nothing else that the caller believes holds.
    """
    if row.generation != generation:
        return StaleRoute()
    if row.status in (SandboxStatus.RELEASING, SandboxStatus.RELEASED):
        return StaleRoute("The sandbox was released; resolve it again.")
    if row.status in (SandboxStatus.SUSPENDING, SandboxStatus.SUSPENDED):
        return SandboxSuspended()
    if row.worker_epoch != row.owner_epoch:
        return StaleRoute("The worker was restarted; resolve the sandbox again.")
    if not owner_lives(row):
        return WorkerLost(retry_after_seconds=5)
    return None


def owner_lives(row: OwnedRow) -> bool:
    """Whether the owner holds its lease by the database's clock."""
    return row.owner_status in LIVING and row.owner_lease_us > row.now
