"""What the fleet service takes and hands out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from sandloom.ids import SandboxKey


class WorkerStatus(StrEnum):
    """ACTIVE takes new sandboxes, DRAINING none, STOPPED ended by itself, GONE was declared lost.

    Rows are never DRAINING: that is an ACTIVE worker whose row has a reason to take nothing.
    """

    ACTIVE = "ACTIVE"
    DRAINING = "DRAINING"
    STOPPED = "STOPPED"
    GONE = "GONE"


#: What a worker is short of when it is about to end: nothing is woken there either.
STOPPING = "stopping"

#: Stronger isolation has the higher rank; placement prefers it.
ISOLATION_RANK = {"basic": 1, "standard": 2, "strict": 3}


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """What a worker says of itself when it starts.

    ``takeover``: the caller holds the host lock of this very root, so that no other process can be using it and a lease
    that still lives belongs to a process that is dead. Otherwise an earlier owner counts as alive until
    ``fence_grace_seconds`` after its lease: so long may its commands go on. ``present``: the sandboxes whose
    directories are on the disk. ``short_of``: what the node lacks to take sandboxes.
    """

    worker_id: str
    queue: str
    data_endpoint: str
    public_key: str
    profile_id: str
    declared_hash: str
    effective_hash: str
    isolation_level: str
    storage_mode: str
    root_id: str
    uid_start: int
    uid_end: int
    capacity: int
    exec_slots: int
    lease_ttl_seconds: float
    fence_grace_seconds: float
    environment: str = "local"
    short_of: str | None = None
    present: frozenset[SandboxKey] = frozenset()
    takeover: bool = False
    node: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Registration:
    """``epoch`` is new; ``kept`` and ``lost`` count the sandboxes of earlier epochs."""

    epoch: int
    kept: int
    lost: int


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker as the database knows it. ``live``: its lease has not expired by the database's clock.

    ``drain_us``: since when the operator wants it empty. ``short_of``: what it lacks to take sandboxes: ``disk``,
    ``inodes``, ``broker``, or that it is ``stopping``.
    """

    worker_id: str
    epoch: int
    status: WorkerStatus
    queue: str
    data_endpoint: str
    public_key: str
    profile_id: str
    declared_hash: str
    effective_hash: str
    isolation_rank: int
    storage_mode: str
    root_id: str
    capacity: int
    exec_slots: int
    reserved: int
    renewals: int
    lease_expires_us: int
    registered_us: int
    now_us: int
    node: Mapping[str, Any]
    load: Mapping[str, Any]
    drain_us: int | None
    short_of: str | None

    @property
    def live(self) -> bool:
        return self.status in (WorkerStatus.ACTIVE, WorkerStatus.DRAINING) and self.lease_expires_us > self.now_us
