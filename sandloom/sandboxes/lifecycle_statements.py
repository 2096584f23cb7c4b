"""What a sandbox's way from resolve to release is sent as, built once; see ``sandloom.db.prepared``."""

from __future__ import annotations

from sqlalchemy import ColumnElement, and_, bindparam, case, func, insert, or_, select, update

from sandloom.db.clock import now_us
from sandloom.db.prepared import Query, Write
from sandloom.db.tables import execs, sandbox_history, sandboxes, workers
from sandloom.db.tallies import Tally, value_of
from sandloom.fleet.records import STOPPING
from sandloom.sandboxes.statements import IS_FENCE, IS_KEY
from sandloom.sandboxes.states import SandboxStatus, Workspace

_s, _w, _h, _e = sandboxes.c, workers.c, sandbox_history.c, execs.c

_IS_WORKER = _w.worker_id == bindparam("of_worker")
_IS_OF_GENERATION = _s.generation == bindparam("of_generation")
_IS_HISTORY = and_(
    _h.tenant_id == bindparam("of_tenant"),
    _h.sandbox_id == bindparam("of_sandbox"),
    _h.generation == bindparam("of_generation"),
)
#: Of a sandbox that has no row: after all that were pruned.
_FIRST_GENERATION = (value_of(Tally.PRUNED_GENERATION) + 1).label("first_generation")
_HAS_ROOM = and_(_w.status == "ACTIVE", _w.reserved < _w.capacity, _w.lease_expires_us > now_us())
TAKES_SANDBOXES = and_(_HAS_ROOM, _w.drain_us.is_(None), _w.short_of.is_(None))
#: A worker of a release that did not say its environment serves any.
IS_OF_PROFILE = and_(
    _w.profile_id == bindparam("of_profile"),
    _w.declared_hash == bindparam("of_declared"),
    or_(_w.environment == bindparam("of_environment"), _w.environment.is_(None)),
)
CANDIDATE_COLUMNS = (_w.worker_id, _w.epoch, _w.isolation_rank, _w.reserved, _w.capacity)

#: Live workers of a profile that have a free slot.
CANDIDATES = Query(select(*CANDIDATE_COLUMNS).where(TAKES_SANDBOXES, IS_OF_PROFILE).limit(256))


def _reserve(condition: ColumnElement[bool]) -> Write:
    return Write(
        update(workers)
        .where(_IS_WORKER, _w.epoch == bindparam("of_epoch"), condition)
        .values(
            reserved=_w.reserved + 1,
            next_uid=case((_w.next_uid >= _w.uid_end, _w.uid_start), else_=_w.next_uid + 1),
        )
    )


#: One slot and the next UID number of a worker, whose row is locked then; unless more slots than ``bound`` are taken.
RESERVE = _reserve(and_(TAKES_SANDBOXES, _w.reserved <= bindparam("bound")))
#: The same on a worker that takes nothing new, for what it has already.
RESERVE_AT_HOME = _reserve(and_(_HAS_ROOM, or_(_w.short_of.is_(None), _w.short_of != STOPPING)))
RESERVED = Query(
    select(
        _w.worker_id, _w.epoch, _w.effective_hash, _w.root_id, _w.storage_mode, _w.uid_start, _w.uid_end, _w.next_uid,
        now_us().label("now"), _FIRST_GENERATION,
    ).where(_IS_WORKER)
)  # fmt: skip
FIRST_GENERATION = Query(select(_FIRST_GENERATION))
GIVE_BACK = Write(
    update(workers)
    .where(_IS_WORKER)
    .values(
        reserved=case((_w.reserved >= bindparam("slots"), _w.reserved - bindparam("slots")), else_=0),
    )
)
UID_HOLDER = Query(
    select(_s.sandbox_id).where(_s.root_id == bindparam("of_root"), _s.held_uid == bindparam("of_uid")).limit(1)
)

#: What an assignment says of a sandbox, beside its key and generation.
ASSIGNED_COLUMNS = (
    "workspace_scope_id", "profile_id", "profile_hash", "status", "worker_id", "worker_epoch", "root_id",
    "storage_mode", "sandbox_uid", "held_uid", "workspace", "snapshot", "active_execs", "exclusive_exec_id",
    "assigned_us", "ready_us", "last_active_us", "status_us",
)  # fmt: skip
CREATE = Write(
    insert(sandboxes),
    (
        "tenant_id", "sandbox_id", "generation", "lifecycle_count", "total_lifetime_ms", "created_us",
        *ASSIGNED_COLUMNS,
    ),
)  # fmt: skip
#: Values under ``new_<column>``.
ASSIGN_AGAIN = Write(
    update(sandboxes)
    .where(IS_KEY, _IS_OF_GENERATION)
    .values(
        generation=_s.generation + 1,
        lifecycle_count=_s.lifecycle_count + 1,
        look_us=0,
        **{name: bindparam(f"new_{name}") for name in ASSIGNED_COLUMNS},
    )
)
OPEN_HISTORY = Write(
    insert(sandbox_history), ("tenant_id", "sandbox_id", "generation", "worker_id", "started_us", "created_by")
)

_READY = {"ready_us": now_us(), "status_us": now_us(), "last_active_us": now_us()}
_READY_OR_RUNNING = case((_s.active_execs > 0, SandboxStatus.RUNNING.value), else_=SandboxStatus.READY.value)
_IS_ASSIGNED = _s.status == SandboxStatus.ASSIGNED
READY = Write(update(sandboxes).where(IS_FENCE, _IS_ASSIGNED).values(status=_READY_OR_RUNNING, **_READY))
#: The same where the disk showed something else than the assignment expected.
READY_WITH = Write(
    update(sandboxes)
    .where(IS_FENCE, _IS_ASSIGNED)
    .values(status=_READY_OR_RUNNING, workspace=bindparam("found"), **_READY)
)
READY_HISTORY = Write(
    update(sandbox_history).where(_IS_HISTORY, _h.ready_us.is_(None)).values(ready_us=bindparam("now"))
)

BEGIN_RELEASE = Write(
    update(sandboxes)
    .where(IS_KEY, _IS_OF_GENERATION)
    .values(status=SandboxStatus.RELEASING.value, status_us=bindparam("now"), look_us=0)
)
CLOSE_HISTORY = Write(
    update(sandbox_history)
    .where(_IS_HISTORY, _h.released_us.is_(None))
    .values(released_us=now_us(), release_reason=bindparam("reason"), released_by=bindparam("closer"))
)


def open_exec_count() -> ColumnElement[int]:
    """Execs of a sandbox that have not ended, correlated with ``sandboxes``."""
    return (
        select(func.count())
        .select_from(execs)
        .where(_e.tenant_id == _s.tenant_id, _e.sandbox_id == _s.sandbox_id, _e.open_worker_id.is_not(None))
        .scalar_subquery()
    )


def lifetime_ms() -> ColumnElement[int]:
    """What ``total_lifetime_ms`` is once the time since the assignment has been added."""
    return _s.total_lifetime_ms + (now_us() - _s.assigned_us) // 1000


#: What is said of a sandbox that has become RELEASED, beside ``workspace``.
RELEASED_VALUES = {
    "status": SandboxStatus.RELEASED.value,
    "held_uid": None,
    "active_execs": 0,
    "exclusive_exec_id": None,
    "status_us": now_us(),
    "look_us": 0,
    "total_lifetime_ms": lifetime_ms(),
}
FINISH_RELEASE = Write(
    update(sandboxes)
    .where(IS_FENCE, _s.status == SandboxStatus.RELEASING, open_exec_count() == 0)
    .values(workspace=Workspace.NEW.value, **RELEASED_VALUES)
)
RELEASING = Query(
    select(_s.tenant_id, _s.sandbox_id, _s.generation).where(
        _s.worker_id == bindparam("of_worker"),
        _s.worker_epoch == bindparam("of_epoch"),
        _s.held_uid.is_not(None),
        _s.status == SandboxStatus.RELEASING,
    )
)
