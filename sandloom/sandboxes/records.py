"""What the sandbox service hands out."""

from __future__ import annotations

from dataclasses import dataclass

from sandloom.ids import SandboxKey
from sandloom.sandboxes.states import SandboxStatus


@dataclass(frozen=True, slots=True)
class Fence:
    """Who may act on a sandbox: every write of a worker names this and wins only while it is current."""

    key: SandboxKey
    generation: int
    worker_id: str
    worker_epoch: int


@dataclass(frozen=True, slots=True)
class Route:
    """A sandbox and where it lives. Times are database microseconds since the epoch."""

    key: SandboxKey
    workspace_scope_id: str
    profile_id: str
    profile_hash: str
    worker_id: str
    worker_epoch: int
    queue: str
    data_endpoint: str
    generation: int
    sandbox_uid: int
    status: SandboxStatus
    storage_mode: str
    workspace: str
    root_id: str
    active_execs: int
    exclusive_exec_id: str | None
    expires_us: int | None
    created_us: int
    ready_us: int | None
    last_active_us: int
    snapshot: str | None = None
    #: Whether the owner has a directory for it, or is to have one.
    has_directory: bool = True

    @property
    def has_spare_copy(self) -> bool:
        """Whether it sleeps with its files both on its owner's own disk and in the object store."""
        return (
            self.status is SandboxStatus.SUSPENDED
            and self.has_directory
            and self.snapshot is not None
            and self.storage_mode == "local"
        )

    @property
    def fence(self) -> Fence:
        return Fence(self.key, self.generation, self.worker_id, self.worker_epoch)
