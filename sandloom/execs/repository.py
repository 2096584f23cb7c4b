"""Every statement on ``execs``, ``exec_events`` and ``usage_records``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, and_, insert, literal, select

from sandloom.db.clock import now_us
from sandloom.db.prepared import Write
from sandloom.db.tables import exec_events, execs
from sandloom.execs import statements
from sandloom.execs.admission import Admission
from sandloom.execs.records import Event, Exec, ExecRequest, Outcome
from sandloom.execs.states import TERMINAL, ExecStatus
from sandloom.ids import ExecKey

_e = execs.c

MAX_EVENT_BYTES = 65_536
#: Up to here a statement is kept for each number of events; more of them are bulk anyway.
_FEW_EVENTS = 8


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
    return statements.EXEC.one_or_none(connection, statements.of_key(key))


def without_input() -> Select[Any]:
    """Execs as ``to_exec`` takes them, with None for ``stdin``, which may have a MiB each."""
    return select(*(column if column is not _e.stdin else literal(None).label("stdin") for column in execs.columns))


def admission(connection: Connection, asked: Admission) -> Row[Any] | None:
    """The row of ``statements.ADMISSION``, unless there is no such sandbox."""
    return statements.ADMISSION.one_or_none(connection, {**statements.of_key(asked.key), **asked.weighed_values()})


def queued_exec(row: Any, admission: Admission) -> Exec:
    """The exec that was admitted to the sandbox ``row`` at ``row.now``."""
    request = admission.request
    return Exec(
        key=admission.key, generation=row.generation, worker_id=row.worker_id, worker_epoch=row.worker_epoch,
        status=ExecStatus.QUEUED, exec_scope=request.exec_scope, request=request,
        timeout_seconds=admission.timeout_seconds, exit_code=None, signal=None, reason=None, detail=None, error=None,
        truncated=False, usage={}, duration_ms=None, last_seq=1, queued_us=row.now, started_us=None, finished_us=None,
        cancel_us=None, task_id=admission.task_id,
    )  # fmt: skip


@cache
def status_data(status: ExecStatus) -> bytes:
    """The JSON of a ``status`` event that is not the last."""
    return json.dumps({"status": status.value}).encode()


def end_data(outcome: Outcome) -> bytes:
    """The JSON of the terminal ``status`` event, which carries the outcome."""
    data = {
        "status": outcome.status.value,
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
    connection: Connection, key: ExecKey, first_seq: int, events: Sequence[tuple[str, bytes]], at_us: int | None = None
) -> None:
    """One insert for all, stamped by the database's clock unless ``at_us`` is given."""
    if not events:
        return
    if len(events) > _FEW_EVENTS:
        rows = [
            {**key_values(key), "seq": seq, "kind": kind, "data": data}
            for seq, (kind, data) in enumerate(events, first_seq)
        ]
        if at_us is None and connection.dialect.name in ("mysql", "mariadb"):
            # Rows with a call in them would be sent one by one.
            at_us = connection.execute(select(now_us())).scalar_one()
        # The rows are parameters and not part of the statement, so that it is compiled once.
        connection.execute(insert(exec_events).values(at_us=now_us() if at_us is None else at_us), rows)
        return
    values = statements.of_key(key)
    if at_us is not None:
        values["at_us"] = at_us
    for n, (kind, data) in enumerate(events):
        values[f"seq_{n}"], values[f"kind_{n}"], values[f"data_{n}"] = first_seq + n, kind, data
    statements.insert_events(len(events), at_us is None).run(connection, values)


def events_after(connection: Connection, key: ExecKey, after: int, limit: int, max_bytes: int) -> list[Event]:
    """At least one, if there is one."""
    values = {**statements.of_key(key), "of_seq": after, "at_most": limit}
    if limit * MAX_EVENT_BYTES <= max_bytes:
        rows = statements.EVENTS_AFTER.all(connection, values)
    else:
        rows = statements.EVENTS_WITHIN.all(connection, {**values, "of_bytes_below": max_bytes})
    return [Event(seq, kind, bytes(data), at_us) for seq, kind, data, at_us in rows]


def output(connection: Connection, key: ExecKey) -> tuple[bytes, bytes]:
    """Everything the command wrote, as far as it was kept: (stdout, stderr)."""
    rows = statements.OUTPUT.all(connection, statements.of_key(key))
    return (
        b"".join(bytes(data) for kind, data in rows if kind == "stdout"),
        b"".join(bytes(data) for kind, data in rows if kind == "stderr"),
    )


class LostRace(Exception):
    """The row was no longer in the state that the write was for."""


def end(
    connection: Connection,
    key: ExecKey,
    status: ExecStatus | str,
    generation: int,
    last_seq: int,
    events: Sequence[tuple[str, bytes]],
    outcome: Outcome,
) -> None:
    """Move an exec to its terminal status together with everything that belongs to it; LostRace if it has moved on.

    ``status``, ``generation`` and ``last_seq`` are what was seen of the row.
    """
    where = {**statements.of_key(key), "of_status": status, "of_generation": generation}
    _end(connection, statements.LEAVE_SEEN, statements.END_SEEN, key, where, last_seq, events, outcome)


def end_own(
    connection: Connection,
    key: ExecKey,
    where: Mapping[str, Any],
    last_seq: int,
    events: Sequence[tuple[str, bytes]],
    outcome: Outcome,
) -> None:
    """``end`` for the owner that runs it, whatever the generation."""
    _end(connection, statements.LEAVE_OWN, statements.END_OWN, key, where, last_seq, events, outcome)


def _end(
    connection: Connection,
    leave: Write,
    move: Write,
    key: ExecKey,
    where: Mapping[str, Any],
    last_seq: int,
    events: Sequence[tuple[str, bytes]],
    outcome: Outcome,
) -> None:
    """The sandbox comes first: see ``db.tables``."""
    assert outcome.status in TERMINAL
    leave.run(connection, where)
    trace = [*events, ("status", end_data(outcome))]
    if move.run(connection, {**where, **end_values(outcome, last_seq, trace)}) != 1:
        raise LostRace
    insert_events(connection, key, last_seq + 1, trace)
    statements.INSERT_USAGE.run(connection, {**statements.of_key(key), **used_values(outcome)})


def end_values(outcome: Outcome, last_seq: int, trace: Sequence[tuple[str, bytes]]) -> dict[str, Any]:
    """What a terminal exec is written with; ``trace`` are the last events."""
    return {
        "of_last_seq": last_seq,
        "new_status": outcome.status,
        "new_reason": outcome.reason,
        "new_exit_code": outcome.exit_code,
        "new_signal": outcome.signal,
        "new_detail": outcome.detail,
        "new_error": outcome.error,
        "new_truncated": outcome.truncated,
        "new_usage": json.dumps(dict(outcome.usage)),
        "new_duration_ms": outcome.duration_ms,
        "new_last_seq": last_seq + len(trace),
    }


def used_values(outcome: Outcome) -> dict[str, int]:
    """``statements.USED``. Memory is the peak for as long as the command ran, rounded up."""
    measured = ("cpu_ms", "max_rss_bytes", "io_bytes", "egress_bytes", "model_tokens")
    used = {name: outcome.usage.get(name) or 0 for name in measured}
    memory_mib_ms = -(-used["max_rss_bytes"] * outcome.duration_ms // (1 << 20))
    return {**used, "wall_ms": outcome.duration_ms, "memory_mib_ms": memory_mib_ms}
