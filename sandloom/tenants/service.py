"""What tenants may have. A bound is exact: whoever admits something for a tenant that has one holds the tenant's row
while it counts and until its own row is there. What a day brings is known when commands end, and lags by seconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from sqlalchemy import Connection, case, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from sandloom.db.engine import Database
from sandloom.db.tables import execs, sandbox_history, tenants
from sandloom.errors import QuotaExceeded
from sandloom.tenants.recent import KEPT_SECONDS, Recent
from sandloom.tenants.records import Quotas
from sandloom.tenants.usage import Usage

_t, _e, _h = tenants.c, execs.c, sandbox_history.c
_QUOTAS = tuple(field.name for field in fields(Quotas))
#: How long to wait before one more try, by quota; a day's end may be far.
_RETRY_AFTER_SECONDS = {"cpu_seconds_a_day": 600, "model_tokens_a_day": 600, "storage_bytes": 60, "sandboxes": 30}
#: What needs more of which; a tenant that has reached a bound may do everything else.
_OF_COMMANDS = ("cpu_seconds_a_day", "model_tokens_a_day", "storage_bytes")
_OF_FILES = ("storage_bytes",)


class Tenants:
    """Thread-safe. Quotas, and what a day has brought, are known for ``kept_seconds``."""

    def __init__(self, db: Database, kept_seconds: float = KEPT_SECONDS) -> None:
        self._db = db
        self._usage = Usage(db)
        self._quotas: Recent[str, Quotas] = Recent(self.get, kept_seconds)
        self._days: Recent[str, tuple[int, int, int]] = Recent(self._usage.of_today, kept_seconds)

    # --- operators ---

    def get(self, tenant_id: str) -> Quotas:
        """No bounds for a tenant of which nothing was said."""
        row = self._db.read(lambda c: c.execute(_ROW.where(_t.tenant_id == tenant_id)).one_or_none())
        return Quotas() if row is None else Quotas(*row)

    def set(self, tenant_id: str, quotas: Quotas) -> None:
        """These and no others. What there is already stays."""
        values = asdict(quotas)

        def move(connection: Connection) -> None:
            known = connection.execute(select(_t.tenant_id).where(_t.tenant_id == tenant_id)).one_or_none()
            if known is None:
                connection.execute(insert(tenants).values(tenant_id=tenant_id, **values))
            else:
                connection.execute(update(tenants).where(_t.tenant_id == tenant_id).values(values))

        try:
            self._db.write(move)
        except IntegrityError:
            self._db.write(move)  # another wrote the first row, which is there now
        self._quotas.forget(tenant_id)

    # --- callers ---

    def asks(self, tenant_id: str) -> Ask:
        """What is known before a transaction that admits something. Raises Unavailable."""
        quotas = self._quotas.get(tenant_id)
        if not quotas.bounded:
            return Ask(tenant_id, False, None, None)
        return Ask(
            tenant_id, True, self._excess(tenant_id, quotas, _OF_COMMANDS), self._excess(tenant_id, quotas, _OF_FILES)
        )

    def demand_room(self, tenant_id: str) -> None:
        """Raises QuotaExceeded when the tenant's files take as much as they may."""
        excess = self.asks(tenant_id).of_files
        if excess is not None:
            raise excess

    def _excess(self, tenant_id: str, quotas: Quotas, names: Sequence[str]) -> QuotaExceeded | None:
        if all(getattr(quotas, name) is None for name in names):
            return None
        cpu_ms, tokens, stored = self._days.get(tenant_id)
        used = {"cpu_seconds_a_day": cpu_ms // 1000, "model_tokens_a_day": tokens, "storage_bytes": stored}
        return _first_excess(quotas, {name: used[name] for name in names})


@dataclass(frozen=True, slots=True)
class Ask:
    """A tenant that wants something admitted. Its methods lock its row until the transaction ends, if it is
    ``bounded``; otherwise they do nothing. ``of_…``: why the day, or the disk, allows no more."""

    tenant_id: str
    bounded: bool
    of_commands: QuotaExceeded | None
    of_files: QuotaExceeded | None

    def command(self, connection: Connection) -> QuotaExceeded | None:
        """Why it may not have one more command."""
        if not self.bounded:
            return None
        quotas = _locked(connection, self.tenant_id)
        if quotas.open_execs is None and quotas.queued_execs is None:
            return self.of_commands
        waiting = func.coalesce(func.sum(case((_e.status == "QUEUED", 1), else_=0)), 0)
        mine = (_e.open_worker_id.is_not(None), _e.tenant_id == self.tenant_id)
        opened, queued = connection.execute(select(func.count(), waiting).where(*mine)).one()
        return self.of_commands or _first_excess(quotas, {"open_execs": opened, "queued_execs": int(queued)})

    def sandbox(self, connection: Connection) -> QuotaExceeded | None:
        """Why it may not have one more sandbox; suspended ones count."""
        if not self.bounded:
            return None
        quotas = _locked(connection, self.tenant_id)
        # One generation of each sandbox that is alive has no end yet.
        alive = select(func.count()).where(_h.tenant_id == self.tenant_id, _h.released_us.is_(None))
        return self.of_files or _first_excess(quotas, {"sandboxes": connection.execute(alive).scalar_one()})


_ROW = select(*(_t[name] for name in _QUOTAS))


def _locked(connection: Connection, tenant_id: str) -> Quotas:
    row: Any = connection.execute(_ROW.where(_t.tenant_id == tenant_id).with_for_update()).one_or_none()
    return Quotas() if row is None else Quotas(*row)


def _first_excess(quotas: Quotas, used: dict[str, int]) -> QuotaExceeded | None:
    for name, number in used.items():
        limit = getattr(quotas, name)
        if limit is not None and number >= limit:
            return QuotaExceeded(
                f"The tenant's quota '{name}' is {limit}, and {number} are used.",
                quota=name, limit=limit, used=number, retry_after_seconds=_RETRY_AFTER_SECONDS.get(name, 1),
            )  # fmt: skip
    return None
