"""What is sent to the database for every call, built once; see ``sandloom.db.prepared``."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Select, and_, bindparam, insert, literal, or_, select, update

from sandloom.db.clock import now_us
from sandloom.db.prepared import Query, Write
from sandloom.db.tables import operations, sandboxes, workers
from sandloom.ids import SandboxKey
from sandloom.sandboxes.records import Fence
from sandloom.sandboxes.states import OPEN

_s, _w = sandboxes.c, workers.c

ROUTE_COLUMNS = (
    *sandboxes.columns,
    _w.queue,
    _w.data_endpoint,
    _w.epoch.label("owner_epoch"),
    _w.status.label("owner_status"),
    _w.lease_expires_us.label("owner_lease_us"),
)

IS_KEY = and_(_s.tenant_id == bindparam("of_tenant"), _s.sandbox_id == bindparam("of_sandbox"))
IS_FENCE = and_(
    IS_KEY,
    _s.generation == bindparam("of_generation"),
    _s.worker_id == bindparam("of_worker"),
    _s.worker_epoch == bindparam("of_epoch"),
)

#: One of ``states.OPEN``.
IS_OPEN = or_(*(_s.status == status for status in OPEN))


def of_key(key: SandboxKey) -> dict[str, Any]:
    return {"of_tenant": key.tenant_id, "of_sandbox": key.sandbox_id}


def of_fence(fence: Fence) -> dict[str, Any]:
    return {
        **of_key(fence.key),
        "of_generation": fence.generation,
        "of_worker": fence.worker_id,
        "of_epoch": fence.worker_epoch,
    }


#: Sandboxes with their owners, and the database's time as ``now``.
ROUTES: Select[Any] = select(*ROUTE_COLUMNS, now_us().label("now")).join_from(
    sandboxes, workers, _s.worker_id == _w.worker_id
)
ROUTE_OF_KEY = ROUTES.where(IS_KEY)
ROUTE = Query(ROUTE_OF_KEY, "route")
ROUTE_LOCKED = Query(ROUTE_OF_KEY.with_for_update(of=sandboxes), "route_locked")
#: For MariaDB, which cannot lock one table of a join, while the worker's row must stay free for its lease.
LOCK = Query(select(_s.sandbox_id).where(IS_KEY).with_for_update(), "lock")

#: With ``now``: a resolve that found the sandbox living.
KEEP_ALIVE = Write(update(sandboxes).where(IS_KEY).values(last_active_us=bindparam("now")), name="keep_alive")

#: The compare-and-set before a file call.
TOUCH = Write(
    update(sandboxes).where(IS_FENCE, IS_OPEN, _s.exclusive_exec_id.is_(None)).values(last_active_us=now_us()),
    name="touch",
)

#: Stands where an exec's id stands while the service itself has the sandbox alone; no exec can have this id.
SERVICE_HOLD = "#service"
HOLD = Write(
    update(sandboxes)
    .where(IS_FENCE, IS_OPEN, _s.active_execs == 0, _s.exclusive_exec_id.is_(None))
    .values(exclusive_exec_id=literal(SERVICE_HOLD), last_active_us=now_us()),
    name="hold",
)
LET_GO = Write(
    update(sandboxes)
    .where(IS_FENCE, _s.exclusive_exec_id == literal(SERVICE_HOLD))
    .values(exclusive_exec_id=None, last_active_us=now_us()),
    name="let_go",
)

CLAIM_OPERATION = Write(insert(operations), ("tenant_id", "op_id", "seen_us"), "claim_operation")
