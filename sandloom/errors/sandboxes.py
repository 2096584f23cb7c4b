"""Errors of a sandbox's life."""

from __future__ import annotations

from typing import Self

from sandloom.errors.base import Category, SandloomError


class SandboxNotFound(SandloomError):
    """No sandbox of this id exists; resolve it first."""

    code, status, category = "SANDBOX_NOT_FOUND", 404, Category.CHANGE


class StaleRoute(SandloomError):
    """The generation, owner or owner epoch is no longer current; resolve the sandbox again."""

    code, status, category = "STALE_SANDBOX_ROUTE", 409, Category.CHANGE


class StaleGeneration(SandloomError):
    """The generation is no longer current; resolve the sandbox again."""

    code, status, category = "STALE_SANDBOX_GENERATION", 409, Category.CHANGE


class ScopeMismatch(SandloomError):
    """This sandbox id belongs to another workspace_scope_id, for good; name that one, or choose another id."""

    code, status, category = "SANDBOX_SCOPE_MISMATCH", 409, Category.CHANGE


class NoWorkerAvailable(SandloomError):
    """No live worker of this profile has a free slot; try again, or add workers."""

    code, status, category, retryable = "NO_SANDBOX_WORKER_AVAILABLE", 503, Category.WAIT, True

    @classmethod
    def of(cls, profile_id: str) -> Self:
        return cls(f"No live worker of the profile '{profile_id}' has a free slot.", retry_after_seconds=5)


class WorkerLost(SandloomError):
    """The worker that owns the sandbox does not answer."""

    code, status, category = "SANDBOX_WORKER_LOST", 503, Category.WAIT


class SandboxSuspended(SandloomError):
    """The sandbox is suspended; resume it first."""

    code, status, category = "SANDBOX_SUSPENDED", 409, Category.CHANGE


class SuspendBusy(SandloomError):
    """Something runs in the sandbox, or a file call is inside; suspend it when it is quiet."""

    code, status, category = "SANDBOX_SUSPEND_BUSY", 409, Category.WAIT


class SuspendInProgress(SandloomError):
    """The sandbox is being suspended; repeat the call in a moment."""

    code, status, category, retryable = "SANDBOX_SUSPEND_IN_PROGRESS", 409, Category.WAIT, True


class DormantWorkspaceUnavailable(SandloomError):
    """The only copy of the suspended sandbox's files is on a worker that is not there."""

    code, status, category, retryable = "SANDBOX_DORMANT_WORKSPACE_UNAVAILABLE", 503, Category.WAIT, True


class SnapshotUnavailable(SandloomError):
    """Snapshots are asked for (SANDBOX_SUSPEND_SNAPSHOT=always) and there is no object store to keep them in."""

    code, status, category = "SANDBOX_SNAPSHOT_UNAVAILABLE", 501, Category.STOP


class SnapshotFailed(SandloomError):
    """The sandbox's files cannot be archived or copied whole, so it stays as it was."""

    code, status, category = "SANDBOX_SNAPSHOT_FAILED", 409, Category.CHANGE


class SandboxNotReady(SandloomError):
    """The sandbox is not ready; connect it first."""

    code, status, category = "SANDBOX_NOT_READY", 409, Category.CHANGE


class SandboxBusy(SandloomError):
    """Something runs in the sandbox; wait until it is quiet."""

    code, status, category = "SANDBOX_BUSY", 409, Category.WAIT


class SandboxExists(SandloomError):
    """A sandbox of this id exists already; choose another id for the copy, or release that one first."""

    code, status, category = "SANDBOX_EXISTS", 409, Category.CHANGE


class WorkspaceFailed(SandloomError):
    """The worker could not make the workspace ready; its log has the reason."""

    code, status, category, retryable = "SANDBOX_WORKSPACE_FAILED", 503, Category.WAIT, True
