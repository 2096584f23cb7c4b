"""Whether, and how, a sandbox can be copied as it is now. Pure."""

from __future__ import annotations

from enum import StrEnum

from sandloom.errors import SandboxBusy, SandboxSuspended, SandloomError, StaleRoute, SuspendInProgress
from sandloom.sandboxes.records import Route
from sandloom.sandboxes.states import SandboxStatus


class ForkWay(StrEnum):
    """``FILES``: its owner copies its directory, after it has taken the sandbox for itself. ``SNAPSHOT``: any worker
    copies what the object store has of it."""

    FILES = "files"
    SNAPSHOT = "snapshot"


_S = SandboxStatus

#: By the status of the source; one that is only ASSIGNED is made ready first.
WAYS: dict[SandboxStatus, ForkWay | type[SandloomError]] = {
    _S.ASSIGNED: ForkWay.FILES,
    _S.READY: ForkWay.FILES,
    _S.RUNNING: SandboxBusy,
    _S.SUSPENDING: SuspendInProgress,
    _S.SUSPENDED: ForkWay.SNAPSHOT,
    _S.RELEASING: StaleRoute,
    _S.RELEASED: StaleRoute,
}


def fork_way(source: Route, generation: int) -> ForkWay:
    """Raises StaleRoute, SandboxBusy, SuspendInProgress; SandboxSuspended for one that sleeps without a snapshot."""
    if source.generation != generation:
        raise StaleRoute
    way = WAYS[source.status]
    if not isinstance(way, ForkWay):
        raise way
    if way is ForkWay.SNAPSHOT and source.snapshot is None:
        raise SandboxSuspended("The sandbox sleeps without a snapshot to copy; resume it first.")
    return way
