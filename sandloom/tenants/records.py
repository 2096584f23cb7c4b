"""Keys, quotas and usage as the services hand them out."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import StrEnum


class KeyScope(StrEnum):
    """What a key may do."""

    READ = "read"
    WRITE = "write"
    TASKS = "tasks"


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key without its secret. Times are database microseconds since the epoch; ``now_us`` is when it was read."""

    key_id: str
    tenant_id: str
    name: str
    scopes: frozenset[KeyScope]
    created_by: str
    created_us: int
    expires_us: int | None
    revoked_us: int | None
    now_us: int
    hash: str = field(repr=False)

    @property
    def usable(self) -> bool:
        return self.expires_us is None or self.now_us < self.expires_us


@dataclass(frozen=True, slots=True)
class Quotas:
    """The most that a tenant may have; None: any. ``open_execs``: commands that have not ended, ``queued_execs``: those
    of them that wait. A day is a day of UTC."""

    sandboxes: int | None = None
    open_execs: int | None = None
    queued_execs: int | None = None
    cpu_seconds_a_day: int | None = None
    model_tokens_a_day: int | None = None
    storage_bytes: int | None = None

    @property
    def bounded(self) -> bool:
        return any(value is not None for value in asdict(self).values())


@dataclass(frozen=True, slots=True)
class UsageQuestion:
    """``tenant_id`` None: of every tenant. Days since the epoch, UTC: the first, and the one after the last.

    ``group_by``: of ``tenant``, ``scope``, ``sandbox``, ``day``. ``label``: also by the value of that label.
    """

    tenant_id: str | None
    first_day: int
    end_day: int
    group_by: tuple[str, ...] = ()
    label: str | None = None
    workspace_scope_id: str | None = None
    sandbox_id: str | None = None


@dataclass(frozen=True, slots=True)
class UsageRow:
    """One group; None for what it was not asked for by. ``stored_byte_days``: of each day the most that was measured,
    added up."""

    tenant_id: str | None
    workspace_scope_id: str | None
    sandbox_id: str | None
    day: int | None
    label: str | None
    execs: int
    cpu_ms: int
    wall_ms: int
    memory_mib_ms: int
    io_bytes: int
    egress_bytes: int
    model_tokens: int
    stored_byte_days: int
