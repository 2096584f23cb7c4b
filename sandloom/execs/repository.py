"""Every statement on ``execs``, ``exec_events`` and ``usage_records``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    Select,
    and_,
    case,
    exists,
    func,
    insert,
    literal,
    select,
    update,
)  # fmt: skip

from sandloom.db.clock import now_us
from sandloom.db.tables import exec_events, execs, sandboxes, usage_records
from sandloom.execs.admission import request_document, request_hash
from sandloom.execs.records import Event, Exec, ExecRequest, Outcome
from sandloom.execs.states import TERMINAL, ExecStatus
from sandloom.ids import ExecKey
from sandloom.sandboxes import repository as sandbox_rows
from sandloom.sandboxes.states import OPEN, SandboxStatus

_e, _s = execs.c, sandboxes.c

#: Kinds whose data are raw bytes of the command's output.
OUTPUT_KINDS = ("stdout", "stderr")
MAX_EVENT_BYTES = 65_536


def is_key(key: ExecKey) -> ColumnElement[bool]:
    return and_(_e.tenant_id == key.tenant_id, _e.sandbox_id == key.sandbox_id, _e.exec_id == key.exec_id)


def key_values(key: ExecKey) -> dict[str, str]:
    return {"tenant_id": key.tenant_id, "sandbox_id": key.sandbox_id, "exec_id": key.exec_id}


def to_exec(row: Row[Any], output: tuple[bytes, bytes] | None = None) -> Exec:
    document = json.loads(row.request)
    return Exec(
        key=ExecKey(row.tenant_id, row.sandbox_id, row.exec_id),
        generation=row.generation,
        worker_id=row.worker_id,
        worker_epoch=row.worker_epoch,
        status=ExecStatus(row.status),
        exec_scope=row.exec_scope,
        request=ExecRequest(
            exec_id=row.exec_id,
            argv=tuple(document["argv"]),
            cwd=document["cwd"],
            env=document["env"],
            timeout_seconds=document["timeout_seconds"],
            exec_scope=row.exec_scope,
            stdin=row.stdin,
            labels=json.loads(row.labels),
            limits=document["limits"],
        ),
        timeout_seconds=row.timeout_seconds,
        exit_code=row.exit_code,
        signal=row.signal,
        reason=row.reason,
        detail=row.detail,
        error=row.error,
        truncated=row.truncated,
        usage=json.loads(row.usage) if row.usage else {},
        duration_ms=row.duration_ms,
        last_seq=row.last_seq,
        queued_us=row.queued_us,
        started_us=row.started_us,
        finished_us=row.finished_us,
        cancel_us=row.cancel_us,
        task_id=row.task_id,
        stdout=output[0] if output else None,
        stderr=output[1] if output else None,
    )


def fetch(connection: Connection, key: ExecKey) -> Row[Any] | None:
    return connection.execute(select(execs).where(is_key(key))).one_or_none()


def without_input() -> Select[Any]:
    """Execs as ``to_exec`` takes them, with None for ``stdin``, which may have a MiB each."""
    return select(*(column if column is not _e.stdin else literal(None).label("stdin") for column in execs.columns))


def admission_query(key: ExecKey, exec_scope: str | None) -> Select[Any]:
    """The sandbox, its owner, and what admission weighs: ``queued`` on that worker, ``scope_taken``, and whether the
    exec is ``known``. One statement, so that a command never looks like its own rival."""
    queued = (
        select(func.count())
        .select_from(execs)
        .where(_e.open_worker_id == _s.worker_id, _e.status == ExecStatus.QUEUED)
        .correlate(sandboxes)
        .scalar_subquery()
    )
    taken: ColumnElement[bool] = literal(False)
    if exec_scope is not None:
        taken = (
            exists()
            .where(_e.tenant_id == key.tenant_id, _e.sandbox_id == key.sandbox_id, _e.active_scope == exec_scope)
            .correlate(None)
        )
    return (
        sandbox_rows.route_query()
        .add_columns(
            queued.label("queued"),
            taken.label("scope_taken"),
            exists().where(is_key(key)).correlate(None).label("known"),
        )
        .where(sandbox_rows.is_key(key.sandbox))
    )


def take_place(connection: Connection, row: Any, request: ExecRequest, max_parallel: int) -> bool:
    """Count one more command in the sandbox, under the very conditions that admission saw; False when one changed."""
    room = _s.active_execs == 0 if request.exec_scope is None else _s.active_execs < max_parallel
    moved = connection.execute(
        update(sandboxes)
        .where(
            _s.tenant_id == row.tenant_id,
            _s.sandbox_id == row.sandbox_id,
            _s.generation == row.generation,
            _s.worker_epoch == row.worker_epoch,
            _s.status.in_(OPEN),
            _s.exclusive_exec_id.is_(None),
            room,
        )
        .values(
            status=SandboxStatus.RUNNING,
            active_execs=_s.active_execs + 1,
            exclusive_exec_id=request.exec_id if request.exec_scope is None else None,
            last_active_us=row.now,
        )
    )
    return moved.rowcount == 1


def insert_queued(
    connection: Connection, row: Any, request: ExecRequest, timeout_seconds: int, task_id: str | None, ring_us: int
) -> Exec:
    """The exec row and its first event."""
    key = ExecKey(row.tenant_id, row.sandbox_id, request.exec_id)
    values = {
        **key_values(key),
        "generation": row.generation,
        "worker_id": row.worker_id,
        "worker_epoch": row.worker_epoch,
        "status": ExecStatus.QUEUED,
        "exec_scope": request.exec_scope,
        "active_scope": request.exec_scope,
        "open_worker_id": row.worker_id,
        "request_hash": request_hash(request),
        "request": json.dumps(request_document(request)),
        "labels": json.dumps(dict(request.labels)),
        "stdin": request.stdin,
        "timeout_seconds": timeout_seconds,
        "truncated": False,
        "last_seq": 1,
        "task_id": task_id,
        "rings": 0,
        "ring_us": ring_us,
        "queued_us": row.now,
    }
    connection.execute(insert(execs).values(values))
    insert_events(connection, key, 1, [("status", status_data(ExecStatus.QUEUED))], row.now)
    return Exec(
        key=key, generation=row.generation, worker_id=row.worker_id, worker_epoch=row.worker_epoch,
        status=ExecStatus.QUEUED, exec_scope=request.exec_scope, request=request, timeout_seconds=timeout_seconds,
        exit_code=None, signal=None, reason=None, detail=None, error=None, truncated=False, usage={}, duration_ms=None,
        last_seq=1, queued_us=row.now, started_us=None, finished_us=None, cancel_us=None, task_id=task_id,
    )  # fmt: skip


def status_data(status: ExecStatus, outcome: Outcome | None = None) -> bytes:
    """The JSON of a ``status`` event; a terminal one carries the outcome."""
    data: dict[str, Any] = {"status": status.value}
    if outcome is not None:
        data |= {
            "reason": outcome.reason,
            "exit_code": outcome.exit_code,
            "signal": outcome.signal,
            "detail": outcome.detail,
            "error": outcome.error,
            "truncated": outcome.truncated,
            "duration_ms": outcome.duration_ms,
            "usage": dict(outcome.usage),
        }
    return json.dumps(data).encode()


def insert_events(
    connection: Connection, key: ExecKey, first_seq: int, events: Sequence[tuple[str, bytes]], at_us: Any
) -> None:
    """One insert for all; ``at_us`` is a number or the database's clock."""
    rows = [
        {**key_values(key), "seq": first_seq + i, "kind": kind, "data": data} for i, (kind, data) in enumerate(events)
    ]
    if rows:
        # The rows are parameters and not part of the statement, so that it is compiled once.
        connection.execute(insert(exec_events).values(at_us=at_us), rows)


def events_after(connection: Connection, key: ExecKey, after: int, limit: int) -> list[Event]:
    v = exec_events.c
    rows = connection.execute(
        select(v.seq, v.kind, v.data, v.at_us)
        .where(v.tenant_id == key.tenant_id, v.sandbox_id == key.sandbox_id, v.exec_id == key.exec_id, v.seq > after)
        .order_by(v.seq)
        .limit(limit)
    )
    return [Event(seq, kind, bytes(data), at_us) for seq, kind, data, at_us in rows]


def output(connection: Connection, key: ExecKey) -> tuple[bytes, bytes]:
    """Everything the command wrote, as far as it was kept: (stdout, stderr)."""
    v = exec_events.c
    rows = connection.execute(
        select(v.kind, v.data)
        .where(
            v.tenant_id == key.tenant_id,
            v.sandbox_id == key.sandbox_id,
            v.exec_id == key.exec_id,
            v.kind.in_(OUTPUT_KINDS),
        )
        .order_by(v.seq)
    ).all()
    return (
        b"".join(bytes(data) for kind, data in rows if kind == "stdout"),
        b"".join(bytes(data) for kind, data in rows if kind == "stderr"),
    )


class LostRace(Exception):
    """The row was no longer in the state that the write was for."""


def end(
    connection: Connection,
    key: ExecKey,
    condition: ColumnElement[bool],
    generation: int | None,
    last_seq: int,
    events: Sequence[tuple[str, bytes]],
    outcome: Outcome,
) -> None:
    """Move an exec to its terminal status together with everything that belongs to it; LostRace if it has moved on.

    ``condition`` is what the row must still satisfy beside ``generation`` and ``last_seq``. None for ``generation``:
    the condition fixes it. The sandbox comes first: see ``db.tables``.
    """
    assert outcome.status in TERMINAL
    if generation is None:
        counted = _s.generation == select(_e.generation).where(is_key(key)).correlate(sandboxes).scalar_subquery()
    else:
        # Both rows are held to the number that was seen: while this waits for the sandbox's row, an adoption may move
        # both to the next one, and the count must then not be missed.
        counted = _s.generation == generation
        condition = and_(condition, _e.generation == generation)
    one_left = and_(_s.status == SandboxStatus.RUNNING, _s.active_execs <= 1)
    connection.execute(
        update(sandboxes)
        .where(
            _s.tenant_id == key.tenant_id,
            _s.sandbox_id == key.sandbox_id,
            _s.active_execs > 0,
            counted,
        )
        .values(
            status=case((one_left, SandboxStatus.READY.value), else_=_s.status),
            active_execs=_s.active_execs - 1,
            exclusive_exec_id=case((_s.exclusive_exec_id == key.exec_id, None), else_=_s.exclusive_exec_id),
            last_active_us=now_us(),
        )
    )
    trace = [*events, ("status", status_data(outcome.status, outcome))]
    moved = connection.execute(
        update(execs)
        .where(is_key(key), _e.last_seq == last_seq, _e.open_worker_id.is_not(None), condition)
        .values(
            status=outcome.status,
            reason=outcome.reason,
            exit_code=outcome.exit_code,
            signal=outcome.signal,
            detail=outcome.detail,
            error=outcome.error,
            truncated=outcome.truncated,
            usage=json.dumps(dict(outcome.usage)),
            duration_ms=outcome.duration_ms,
            last_seq=last_seq + len(trace),
            active_scope=None,
            open_worker_id=None,
            finished_us=now_us(),
        )
    )
    if moved.rowcount != 1:
        raise LostRace
    insert_events(connection, key, last_seq + 1, trace, now_us())
    insert_usage(connection, key, outcome.usage, outcome.duration_ms)


def insert_usage(connection: Connection, key: ExecKey, usage: Mapping[str, Any], wall_ms: int) -> None:
    scope = select(_s.workspace_scope_id).where(_s.tenant_id == key.tenant_id, _s.sandbox_id == key.sandbox_id)
    labels = select(_e.labels).where(is_key(key))
    connection.execute(
        insert(usage_records).values(
            **key_values(key),
            workspace_scope_id=scope.scalar_subquery(),
            labels=labels.scalar_subquery(),
            cpu_ms=usage.get("cpu_ms") or 0,
            wall_ms=wall_ms,
            max_rss_bytes=usage.get("max_rss_bytes") or 0,
            io_bytes=usage.get("io_bytes") or 0,
            finished_us=now_us(),
        )
    )
