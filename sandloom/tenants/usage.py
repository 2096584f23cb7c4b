"""What tenants used. A command's numbers come from the transaction that ended it and stand in one place at any time:
first in its own usage record, and once that is pruned in the sums of its day. So nothing is missed and nothing counted
twice, whatever is repeated."""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    JSON,
    ColumnElement,
    Connection,
    Select,
    cast,
    delete,
    func,
    insert,
    literal,
    null,
    select,
    type_coerce,
    union_all,
    update,
)
from sqlalchemy.exc import IntegrityError

from sandloom.clock import MICROSECONDS
from sandloom.db.clock import now_us
from sandloom.db.engine import Database
from sandloom.db.tables import USAGE_SUMS, sandboxes, usage_days, usage_records
from sandloom.ids import ExecKey, SandboxKey
from sandloom.tenants.records import UsageQuestion, UsageRow

DAY_US = 86_400 * MICROSECONDS
_r, _d, _s = usage_records.c, usage_days.c, sandboxes.c
_ADDED = tuple(name for name in USAGE_SUMS if name != "execs")
_GROUPS = {"tenant": "tenant_id", "scope": "workspace_scope_id", "sandbox": "sandbox_id", "day": "day"}
_ATTEMPTS = 4


class Usage:
    """The service over rows."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def report(self, asked: UsageQuestion, limit: int, offset: int) -> tuple[list[UsageRow], int, UsageRow]:
        """A page of the groups in their own order, how many there are, and the sums over all of them."""
        names = [_GROUPS[name] for name in asked.group_by] + (["label"] if asked.label is not None else [])

        def look(connection: Connection) -> tuple[list[UsageRow], int, UsageRow]:
            parts = union_all(*_parts(asked, self._db.dialect)).subquery("parts").c
            sums = [func.coalesce(func.sum(parts[name]), 0).label(name) for name in (*USAGE_SUMS, "stored_bytes")]
            total = connection.execute(select(*sums)).one()
            groups = [parts[name] for name in names]
            grouped = select(*groups, *sums).group_by(*groups)
            count = connection.execute(select(func.count()).select_from(grouped.subquery())).scalar_one()
            # NULL stands first or last, by the database: it must be the same on every page, and nothing more.
            rows = connection.execute(grouped.order_by(*groups).limit(limit).offset(offset)).all() if names else []
            return [_row(row) for row in rows], count if names else 0, _row(total)

        return self._db.read(look)

    def of_today(self, tenant_id: str) -> tuple[int, int, int]:
        """``(cpu_ms, model_tokens, stored_bytes)`` of this day; stored: of this day or the one before, where it is
        more, since sandboxes are measured in the course of a day."""
        today = now_us() // DAY_US
        used = select(func.coalesce(func.sum(_r.cpu_ms), 0), func.coalesce(func.sum(_r.model_tokens), 0)).where(
            _r.tenant_id == tenant_id, _r.finished_us >= today * DAY_US
        )
        stored = (
            select(func.sum(_d.stored_bytes)).where(_d.tenant_id == tenant_id, _d.day >= today - 1).group_by(_d.day)
        )

        def look(connection: Connection) -> tuple[int, int, int]:
            cpu_ms, tokens = connection.execute(used).one()
            return int(cpu_ms), int(tokens), int(max(connection.execute(stored).scalars(), default=0))

        return self._db.read(look)

    def note_stored(self, key: SandboxKey, stored_bytes: int) -> None:
        """What the files of a sandbox take now; the most of a day counts. Nothing for a sandbox that is gone."""

        def move(connection: Connection) -> None:
            found = connection.execute(
                select(_s.workspace_scope_id, now_us().label("now")).where(
                    _s.tenant_id == key.tenant_id, _s.sandbox_id == key.sandbox_id
                )
            ).one_or_none()
            if found is None:
                return
            row = (key.tenant_id, found.now // DAY_US, key.sandbox_id, found.workspace_scope_id)
            more = _d.stored_bytes < stored_bytes
            connection.execute(update(usage_days).where(*_is(row), more).values(stored_bytes=stored_bytes))
            if connection.execute(select(_d.day).where(*_is(row))).one_or_none() is None:
                connection.execute(insert(usage_days).values(**_key(row), stored_bytes=stored_bytes))

        for last in (*[False] * (_ATTEMPTS - 1), True):
            try:
                return self._db.write(move)
            except IntegrityError:
                if last:  # somebody else wrote the first row each time
                    raise


def put_away(connection: Connection, key: ExecKey) -> None:
    """Move a command's usage record into the sums of its day; the caller's transaction removes the command.

    May raise IntegrityError, when another makes the first row of the sums: nothing has happened then.
    """
    mine = (_r.tenant_id == key.tenant_id, _r.sandbox_id == key.sandbox_id, _r.exec_id == key.exec_id)
    used = connection.execute(select(usage_records).where(*mine)).one_or_none()
    # Whoever removes the record adds it, and nobody else.
    if used is None or connection.execute(delete(usage_records).where(*mine)).rowcount != 1:
        return
    row = (used.tenant_id, used.finished_us // DAY_US, used.sandbox_id, used.workspace_scope_id)
    more = {name: getattr(used, name) for name in _ADDED} | {"execs": 1}
    added = update(usage_days).where(*_is(row)).values({name: _d[name] + number for name, number in more.items()})
    if connection.execute(added).rowcount != 1:
        connection.execute(insert(usage_days).values(**_key(row), **more))


def _key(row: tuple[str, int, str, str]) -> dict[str, Any]:
    return dict(zip(("tenant_id", "day", "sandbox_id", "workspace_scope_id"), row, strict=True))


def _is(row: tuple[str, int, str, str]) -> list[ColumnElement[bool]]:
    return [_d[name] == value for name, value in _key(row).items()]


def _parts(asked: UsageQuestion, dialect: str) -> tuple[Select[Any], Select[Any]]:
    """Both places in the same columns."""
    label: ColumnElement[Any] = null()
    if asked.label is not None:
        # PostgreSQL reads text as JSON only when told, and SQLite makes a number of what it is told.
        labels = cast(_r.labels, JSON) if dialect == "postgresql" else type_coerce(_r.labels, JSON)
        label = labels[asked.label].as_string()
    records = select(
        _r.tenant_id, _r.workspace_scope_id, _r.sandbox_id, (_r.finished_us // DAY_US).label("day"),
        label.label("label"), literal(1).label("execs"), *(_r[name] for name in _ADDED),
        literal(0).label("stored_bytes"),
    ).where(_r.finished_us >= asked.first_day * DAY_US, _r.finished_us < asked.end_day * DAY_US)  # fmt: skip
    days = select(
        _d.tenant_id, _d.workspace_scope_id, _d.sandbox_id, _d.day, null().label("label"),
        *(_d[name] for name in (*USAGE_SUMS, "stored_bytes")),
    ).where(_d.day >= asked.first_day, _d.day < asked.end_day)  # fmt: skip
    return _narrowed(records, usage_records.c, asked), _narrowed(days, usage_days.c, asked)


def _narrowed(query: Select[Any], columns: Any, asked: UsageQuestion) -> Select[Any]:
    for name in ("tenant_id", "workspace_scope_id", "sandbox_id"):
        wanted = getattr(asked, name)
        if wanted is not None:
            query = query.where(columns[name] == wanted)
    return query


def _row(row: Any) -> UsageRow:
    values = dict(row._mapping)
    sums = {name: int(values[name]) for name in USAGE_SUMS}
    day = values.get("day")
    return UsageRow(
        tenant_id=values.get("tenant_id"),
        workspace_scope_id=values.get("workspace_scope_id"),
        sandbox_id=values.get("sandbox_id"),
        day=None if day is None else int(day),
        label=values.get("label"),
        stored_byte_days=int(values["stored_bytes"]),
        **sums,
    )
