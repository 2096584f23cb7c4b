"""What is sent to the database for every command, built once; see ``sandloom.db.prepared``.

``of_…`` are the values that find a row; the others are those that are written.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from sqlalchemy import (
    BindParameter,
    ColumnElement,
    Integer,
    Select,
    Update,
    and_,
    bindparam,
    case,
    exists,
    func,
    insert,
    or_,
    select,
    update,
)

from sandloom.db.clock import now_us
from sandloom.db.prepared import Query, Write
from sandloom.db.tables import exec_events, execs, sandboxes, usage_records, workers
from sandloom.execs.states import ExecStatus
from sandloom.ids import ExecKey
from sandloom.sandboxes import statements as sandbox_statements
from sandloom.sandboxes.states import SandboxStatus

_e, _s, _v, _w = execs.c, sandboxes.c, exec_events.c, workers.c

#: Kinds whose data are raw bytes of the command's output.
OUTPUT_KINDS = ("stdout", "stderr")

_TENANT: BindParameter[str] = bindparam("of_tenant")
_SANDBOX: BindParameter[str] = bindparam("of_sandbox")
_EXEC: BindParameter[str] = bindparam("of_exec")
_WORKER: BindParameter[str] = bindparam("of_worker")
_EPOCH: BindParameter[int] = bindparam("of_epoch")
_GENERATION: BindParameter[int] = bindparam("of_generation")
_LAST_SEQ: BindParameter[int] = bindparam("of_last_seq")
_AT_MOST: BindParameter[int] = bindparam("at_most", type_=Integer())
QUEUED_BELOW: BindParameter[int] = bindparam("of_queued_below", type_=Integer())
_IS_KEY = and_(_e.tenant_id == _TENANT, _e.sandbox_id == _SANDBOX, _e.exec_id == _EXEC)
IS_SANDBOX = and_(_s.tenant_id == _TENANT, _s.sandbox_id == _SANDBOX)
_IS_RUNNING = and_(_IS_KEY, _e.status == ExecStatus.RUNNING, _e.worker_id == _WORKER, _e.worker_epoch == _EPOCH)
_EVENTS_OF = and_(_v.tenant_id == _TENANT, _v.sandbox_id == _SANDBOX, _v.exec_id == _EXEC)


def of_key(key: ExecKey) -> dict[str, Any]:
    return {"of_tenant": key.tenant_id, "of_sandbox": key.sandbox_id, "of_exec": key.exec_id}


# --- looking ---

EXEC = Query(select(execs).where(_IS_KEY), "exec")
PROGRESS = Query(select(_e.last_seq, _e.status).where(_IS_KEY), "progress")
EVENTS_AFTER = Query(
    select(_v.seq, _v.kind, _v.data, _v.at_us)
    .where(_EVENTS_OF, _v.seq > bindparam("of_seq"))
    .order_by(_v.seq)
    .limit(_AT_MOST),
    "events_after",
)


def _events_within() -> Select[Any]:
    """Of ``EVENTS_AFTER``, those before which less than ``of_bytes_below`` come. Their sizes are known unread."""
    columns = (_v.seq, _v.kind, _v.data, _v.at_us)
    size = func.length(_v.data)
    before = (func.sum(size).over(order_by=_v.seq) - size).label("before")
    after = select(*columns, before).where(_EVENTS_OF, _v.seq > bindparam("of_seq")).order_by(_v.seq).limit(_AT_MOST)
    found = after.subquery("found").c
    within = found.before < bindparam("of_bytes_below", type_=Integer())
    return select(*(found[column.name] for column in columns)).where(within).order_by(found.seq)


EVENTS_WITHIN = Query(_events_within(), "events_within")
OUTPUT = Query(
    select(_v.kind, _v.data).where(_EVENTS_OF, or_(*(_v.kind == kind for kind in OUTPUT_KINDS))).order_by(_v.seq),
    "output",
)


def _open_of_owner() -> Select[Any]:
    """What runs, then what waits: tenants take turns, and within each its sandboxes, the oldest command first."""
    columns = (_e.tenant_id, _e.sandbox_id, _e.exec_id, _e.generation, _e.status, _e.cancel_us, _e.queued_us)
    in_sandbox = func.row_number().over(partition_by=(_e.tenant_id, _e.sandbox_id), order_by=_e.queued_us)
    mine = (_e.open_worker_id == _WORKER, _e.worker_epoch == _EPOCH)
    boxes = select(*columns, in_sandbox.label("turn")).where(*mine).subquery("boxes").c
    in_tenant = func.row_number().over(partition_by=boxes.tenant_id, order_by=(boxes.turn, boxes.queued_us))
    turns = select(*(boxes[column.name] for column in columns), in_tenant.label("turn")).subquery("turns").c
    waits = case((turns.status == ExecStatus.RUNNING.value, 0), else_=1)
    in_turn = select(*(turns[column.name] for column in columns)).order_by(waits, turns.turn, turns.queued_us)
    return in_turn.limit(_AT_MOST)


OPEN_OF_OWNER = Query(_open_of_owner(), "open_of_owner")
QUEUED_OF_SANDBOX = Query(
    select(_e.exec_id).where(
        _e.open_worker_id == _WORKER, _e.tenant_id == _TENANT, _e.sandbox_id == _SANDBOX, _e.status == ExecStatus.QUEUED
    )
)


def admission() -> Select[Any]:
    """See ``ADMISSION``."""
    # Each sandbox has a bound of its own: the queue is counted only where those of the worker together exceed its.
    can_be_full = _w.reserved * bindparam("of_parallel", type_=Integer()) > QUEUED_BELOW
    counted = (
        select(func.count())
        .select_from(execs)
        .where(_e.open_worker_id == _s.worker_id, _e.status == ExecStatus.QUEUED)
        .correlate(sandboxes)
        .scalar_subquery()
    )
    in_scope = (_e.tenant_id == _TENANT, _e.sandbox_id == _SANDBOX, _e.active_scope == bindparam("of_scope"))
    return sandbox_statements.ROUTE_OF_KEY.add_columns(
        case((can_be_full, counted), else_=0).label("queued"),
        exists().where(*in_scope).correlate(None).label("scope_taken"),
        exists().where(_IS_KEY).correlate(None).label("known"),
    )


#: The sandbox, its owner, and what admission weighs: ``queued`` on that worker, or 0 where its sandboxes cannot fill
#: the queue, ``scope_taken`` (never for a scope that is NULL), and whether the exec is ``known``. One statement, so
#: that a command never looks like its own rival.
ADMISSION = Query(admission(), "admission")

# --- admission ---

#: One command more in a sandbox that can still take it, whichever that is.
PLACE = (
    update(sandboxes)
    .where(
        _s.generation == _GENERATION,
        sandbox_statements.IS_OPEN,
        _s.exclusive_exec_id.is_(None),
        _s.active_execs < bindparam("of_active_below", type_=_s.active_execs.type),
    )
    .values(
        status=SandboxStatus.RUNNING,
        active_execs=_s.active_execs + 1,
        exclusive_exec_id=bindparam("exclusive", type_=_s.exclusive_exec_id.type),
    )
)
TAKE_PLACE = Write(
    PLACE.where(IS_SANDBOX, _s.worker_epoch == _EPOCH).values(last_active_us=bindparam("now")), name="take_place"
)

QUEUED: dict[str, Any] = {"status": ExecStatus.QUEUED, "truncated": False, "last_seq": 1, "rings": 0}
#: Columns of a QUEUED exec that the caller knows, and those that come from its sandbox.
OF_REQUEST = (
    "exec_id", "exec_scope", "active_scope", "request_hash", "request", "labels", "stdin", "timeout_seconds", "task_id",
)  # fmt: skip
OF_SANDBOX = ("tenant_id", "sandbox_id", "generation", "worker_id", "worker_epoch")

INSERT_QUEUED = Write(
    insert(execs).values(**QUEUED),
    (*OF_SANDBOX, *OF_REQUEST, "open_worker_id", "ring_us", "queued_us"),
    "insert_queued",
)

# --- the owner ---

_IS_OWNED = (
    exists()
    .where(
        IS_SANDBOX,
        _s.generation == _GENERATION,
        _s.worker_id == _WORKER,
        _s.worker_epoch == _EPOCH,
        _s.status == SandboxStatus.RUNNING,
    )
    .correlate(execs)
)

CLAIMED = (
    update(execs)
    .where(
        _IS_KEY,
        _e.status == ExecStatus.QUEUED,
        _e.generation == _GENERATION,
        _e.worker_id == _WORKER,
        _e.worker_epoch == _EPOCH,
        _e.queued_us > now_us() - bindparam("of_queued_within_us"),
        _IS_OWNED,
    )
    .values(status=ExecStatus.RUNNING, started_us=now_us(), last_seq=_e.last_seq + 1)
)
CLAIM = Write(CLAIMED, name="claim")

ADVANCED = update(execs).where(_IS_RUNNING, _e.last_seq == _LAST_SEQ).values(last_seq=bindparam("new_last_seq"))
ADVANCE = Write(ADVANCED, name="advance")

# --- the end ---


def left(counted: ColumnElement[bool]) -> Update:
    """One command less in the sandbox, if ``counted`` says that it was counted there."""
    one_left = and_(_s.status == SandboxStatus.RUNNING, _s.active_execs <= 1)
    return (
        update(sandboxes)
        .where(IS_SANDBOX, _s.active_execs > 0, counted)
        .values(
            status=case((one_left, SandboxStatus.READY.value), else_=_s.status),
            active_execs=_s.active_execs - 1,
            exclusive_exec_id=case((_s.exclusive_exec_id == _EXEC, None), else_=_s.exclusive_exec_id),
            last_active_us=now_us(),
        )
    )


def _ended(condition: ColumnElement[bool]) -> Update:
    written = ("status", "reason", "exit_code", "signal", "detail", "error", "truncated", "usage", "duration_ms")
    return (
        update(execs)
        .where(condition, _e.last_seq == _LAST_SEQ)
        .values(
            **{name: bindparam(f"new_{name}", type_=_e[name].type) for name in (*written, "last_seq")},
            active_scope=None,
            open_worker_id=None,
            finished_us=now_us(),
        )
    )


#: Both rows are held to the generation that was seen: while the first write waits for the sandbox's row, an adoption
#: may move both to the next one, and the count must then not be missed.
LEAVE_SEEN = Write(left(_s.generation == _GENERATION), name="leave_seen")
END_SEEN = Write(
    _ended(and_(_IS_KEY, _e.status == bindparam("of_status"), _e.generation == _GENERATION)), name="end_seen"
)

#: The owner knows that the exec is its own, which fixes the generation.
LEAVE_OWN = Write(
    left(_s.generation == select(_e.generation).where(_IS_KEY).correlate(sandboxes).scalar_subquery()),
    name="leave_own",
)
ENDED_OWN = _ended(_IS_RUNNING)
END_OWN = Write(ENDED_OWN, name="end_own")

#: Columns of a usage record that the worker measured.
USED = ("cpu_ms", "wall_ms", "max_rss_bytes", "io_bytes", "memory_mib_ms", "egress_bytes", "model_tokens")
INSERT_USAGE = Write(
    insert(usage_records).values(
        tenant_id=_TENANT,
        sandbox_id=_SANDBOX,
        exec_id=_EXEC,
        workspace_scope_id=select(_s.workspace_scope_id).where(IS_SANDBOX).scalar_subquery(),
        labels=select(_e.labels).where(_IS_KEY).scalar_subquery(),
        finished_us=now_us(),
    ),
    USED,
    "insert_usage",
)

# --- the trace ---


@lru_cache(maxsize=64)
def insert_events(rows: int, by_clock: bool) -> Write:
    """``rows`` events in one statement, with ``seq_0``, ``kind_0``, ``data_0`` and so on; ``by_clock``: stamped by the
    database, else all with ``at_us``."""
    at_us = now_us() if by_clock else bindparam("at_us")
    return Write(
        insert(exec_events).values(
            [
                {
                    "tenant_id": _TENANT,
                    "sandbox_id": _SANDBOX,
                    "exec_id": _EXEC,
                    "seq": bindparam(f"seq_{n}"),
                    "kind": bindparam(f"kind_{n}"),
                    "data": bindparam(f"data_{n}", type_=_v.data.type),
                    "at_us": at_us,
                }
                for n in range(rows)
            ]
        ),
        name=f"insert_events_{rows}",
    )
