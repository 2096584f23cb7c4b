"""The life of a sandbox as a table. Pure."""

from __future__ import annotations

from enum import StrEnum


class SandboxStatus(StrEnum):
    """Where a sandbox is in its life."""

    ASSIGNED = "ASSIGNED"
    READY = "READY"
    RUNNING = "RUNNING"
    SUSPENDING = "SUSPENDING"
    SUSPENDED = "SUSPENDED"
    RELEASING = "RELEASING"
    RELEASED = "RELEASED"


class Workspace(StrEnum):
    """What the current generation found on disk."""

    NEW = "new"
    KEPT = "kept"
    RESTORED = "restored"
    LOST = "lost"


_S = SandboxStatus

#: Every arrow is one compare-and-set on ``(tenant_id, sandbox_id, generation, status)``. Arrows back to ASSIGNED also
#: advance the generation, except SUSPENDED to ASSIGNED on the original worker. So does RELEASED to SUSPENDED: a copy of
#: another sandbox, which is only in the object store yet, takes the id of one that is gone.
MOVES: dict[SandboxStatus, frozenset[SandboxStatus]] = {
    _S.ASSIGNED: frozenset({_S.READY, _S.SUSPENDED, _S.RELEASING, _S.ASSIGNED}),
    _S.READY: frozenset({_S.RUNNING, _S.SUSPENDING, _S.RELEASING, _S.ASSIGNED}),
    _S.RUNNING: frozenset({_S.READY, _S.RELEASING, _S.ASSIGNED}),
    _S.SUSPENDING: frozenset({_S.SUSPENDED, _S.READY, _S.RELEASING}),
    _S.SUSPENDED: frozenset({_S.ASSIGNED, _S.RELEASING}),
    _S.RELEASING: frozenset({_S.RELEASED}),
    _S.RELEASED: frozenset({_S.ASSIGNED, _S.SUSPENDED}),
}

#: States in which the sandbox belongs to a worker, holds a slot there and takes calls.
LIVE = (_S.ASSIGNED, _S.READY, _S.RUNNING)
#: States in which commands may be admitted and file calls made.
OPEN = (_S.READY, _S.RUNNING)
#: States in which the sandbox has files, and nobody has asked to give them up.
ALIVE = (*LIVE, SandboxStatus.SUSPENDING, SandboxStatus.SUSPENDED)
#: States that hold a slot of the worker's capacity.
HOLDS_SLOT = (_S.ASSIGNED, _S.READY, _S.RUNNING, _S.SUSPENDING, _S.RELEASING)


def may_move(source: SandboxStatus, target: SandboxStatus) -> bool:
    """Whether the table has that arrow."""
    return target in MOVES[source]
