"""What suspend and resume are sent as, built once; see ``sandloom.db.prepared``."""

from __future__ import annotations

from sqlalchemy import bindparam, case, select, update

from sandloom.db.clock import now_us
from sandloom.db.prepared import Query, Write
from sandloom.db.tables import sandboxes, workers
from sandloom.sandboxes.lifecycle_statements import CANDIDATE_COLUMNS, IS_OF_PROFILE, TAKES_SANDBOXES
from sandloom.sandboxes.statements import IS_FENCE, IS_KEY, ROUTES
from sandloom.sandboxes.states import SandboxStatus, Workspace

_s, _w = sandboxes.c, workers.c
_IS_QUIET = (_s.active_execs == 0, _s.exclusive_exec_id.is_(None))

BEGIN = Write(
    update(sandboxes)
    .where(IS_FENCE, _s.status == SandboxStatus.READY, *_IS_QUIET)
    .values(status=SandboxStatus.SUSPENDING.value, status_us=now_us(), look_us=0)
)
#: The same unless somebody used the sandbox after ``idle_since``.
BEGIN_IDLE = Write(
    update(sandboxes)
    .where(
        IS_FENCE, _s.status == SandboxStatus.READY, *_IS_QUIET, _s.last_active_us <= bindparam("idle_since")
    )
    .values(status=SandboxStatus.SUSPENDING.value, status_us=now_us(), look_us=0)
)  # fmt: skip
ABORT = Write(
    update(sandboxes)
    .where(IS_FENCE, _s.status == SandboxStatus.SUSPENDING)
    .values(status=SandboxStatus.READY.value, status_us=now_us(), look_us=0)
)
#: The object store is about to get it. What is cut short then is found by its name, and removed.
ANNOUNCE = Write(
    update(sandboxes).where(IS_FENCE, _s.status == SandboxStatus.SUSPENDING).values(snapshot=bindparam("new_snapshot"))
)
FINISH = Write(
    update(sandboxes)
    .where(IS_FENCE, _s.status == SandboxStatus.SUSPENDING)
    .values(status=SandboxStatus.SUSPENDED.value, status_us=now_us(), look_us=0, snapshot=bindparam("new_snapshot"))
)
#: It sleeps, and the object store has it now, too.
KEEP = Write(
    update(sandboxes)
    .where(IS_FENCE, _s.status == SandboxStatus.SUSPENDED, _s.snapshot.is_(None), _s.held_uid.is_not(None))
    .values(snapshot=bindparam("new_snapshot"))
)
#: The owner has removed its copy.
DROP_COPY = Write(
    update(sandboxes)
    .where(
        IS_FENCE,
        _s.status == SandboxStatus.SUSPENDED,
        _s.snapshot == bindparam("of_snapshot"),
        _s.held_uid.is_not(None),
    )
    .values(held_uid=None)
)

#: What a worker that is to be empty still has, the longest unchanged first.
STAYING = Query(
    ROUTES.where(_s.worker_id == bindparam("of_worker"), _s.held_uid.is_not(None), _s.status != SandboxStatus.RELEASED)
    .order_by(_s.status_us)
    .limit(1000)
)
COPIES = Query(
    ROUTES.where(
        _s.worker_id == bindparam("of_worker"),
        _s.held_uid.is_not(None),
        _s.status == SandboxStatus.SUSPENDED,
        _s.snapshot.is_not(None),
        _s.storage_mode == "local",
    )
    .order_by(_s.status_us)
    .limit(16)
)

#: Live workers over one shared root that have a free slot.
NEIGHBOURS = Query(
    select(*CANDIDATE_COLUMNS)
    .where(TAKES_SANDBOXES, IS_OF_PROFILE, _w.root_id == bindparam("of_root"), _w.storage_mode == "shared")
    .limit(256)
)
_WOKEN_COLUMNS = (
    "generation", "worker_id", "worker_epoch", "profile_hash", "sandbox_uid", "held_uid", "root_id", "storage_mode",
    "workspace", "ready_us",
)  # fmt: skip
#: Values under ``new_<column>``.
WAKE = Write(
    update(sandboxes)
    .where(IS_KEY, _s.generation == bindparam("of_generation"), _s.status == SandboxStatus.SUSPENDED)
    .values(
        status=SandboxStatus.ASSIGNED.value,
        status_us=now_us(),
        look_us=0,
        last_active_us=now_us(),
        **{name: bindparam(f"new_{name}") for name in _WOKEN_COLUMNS},
    )
)
#: A resume whose workspace cannot be made ready, known by ``status_us``: every other way to ASSIGNED is an assignment.
#: Commands that wait for it keep it where it is.
FALL_BACK = Write(
    update(sandboxes)
    .where(IS_FENCE, _s.status == SandboxStatus.ASSIGNED, _s.status_us > _s.assigned_us, *_IS_QUIET)
    .values(
        status=SandboxStatus.SUSPENDED.value,
        status_us=now_us(),
        look_us=0,
        held_uid=case((_s.workspace == Workspace.RESTORED, None), else_=_s.held_uid),
    )
)
TAKE_SLOT = Write(
    update(workers).where(_w.worker_id == bindparam("of_worker")).values(reserved=_w.reserved + 1)
)  # fmt: skip
