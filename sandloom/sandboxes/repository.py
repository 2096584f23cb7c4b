"""Every statement on ``sandboxes``, ``sandbox_history`` and the capacity of ``workers``."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, and_, func, insert, literal, select, update

from sandloom.clock import MICROSECONDS
from sandloom.db.clock import now_us
from sandloom.db.tables import sandbox_history, sandboxes, workers
from sandloom.errors import NoWorkerAvailable
from sandloom.ids import SandboxKey
from sandloom.sandboxes import lifecycle_statements as lifecycle
from sandloom.sandboxes import placement, statements
from sandloom.sandboxes import suspension_statements as suspension
from sandloom.sandboxes.placement import Candidate, Loads, Profile
from sandloom.sandboxes.races import Race, SlotTaken
from sandloom.sandboxes.records import Fence, Route
from sandloom.sandboxes.states import HOLDS_SLOT, SandboxStatus, Workspace

_s, _w = sandboxes.c, workers.c
_NO_BOUND = 2**31 - 1


def is_key(key: SandboxKey) -> ColumnElement[bool]:
    return and_(_s.tenant_id == key.tenant_id, _s.sandbox_id == key.sandbox_id)


def fence_of(row: Any) -> Fence:
    return Fence(SandboxKey(row.tenant_id, row.sandbox_id), row.generation, row.worker_id, row.worker_epoch)


def route_query() -> Select[Any]:
    """Sandboxes with their owners, and the database's time as ``now``."""
    return statements.ROUTES


def to_route(row: Row[Any], idle_ttl_seconds: int) -> Route:
    idle_us = idle_ttl_seconds * MICROSECONDS
    live = row.status in (SandboxStatus.ASSIGNED, SandboxStatus.READY, SandboxStatus.RUNNING)
    return Route(
        key=SandboxKey(row.tenant_id, row.sandbox_id),
        workspace_scope_id=row.workspace_scope_id,
        profile_id=row.profile_id,
        profile_hash=row.profile_hash,
        worker_id=row.worker_id,
        worker_epoch=row.worker_epoch,
        queue=row.queue,
        data_endpoint=row.data_endpoint,
        generation=row.generation,
        sandbox_uid=row.sandbox_uid,
        status=SandboxStatus(row.status),
        storage_mode=row.storage_mode,
        workspace=row.workspace,
        root_id=row.root_id,
        active_execs=row.active_execs,
        exclusive_exec_id=row.exclusive_exec_id,
        expires_us=row.last_active_us + idle_us if live else None,
        created_us=row.created_us,
        ready_us=row.ready_us,
        last_active_us=row.last_active_us,
        snapshot=row.snapshot,
        has_directory=row.held_uid is not None,
    )


def fetch(connection: Connection, key: SandboxKey, *, lock: bool = False) -> Row[Any] | None:
    values = statements.of_key(key)
    if lock and connection.dialect.name in ("mysql", "mariadb"):
        statements.LOCK.all(connection, values)
        lock = False  # the next statement sees what was committed while this one waited
    if not lock:
        return statements.ROUTE.one_or_none(connection, values)
    row = statements.ROUTE_LOCKED.one_or_none(connection, values)
    if row is None or row.owner_epoch < row.worker_epoch:
        # PostgreSQL: after waiting for the sandbox's row, its new version was joined with the worker that the statement
        # saw when it began. The lock is held now, so a second statement sees both as they are.
        row = statements.ROUTE_LOCKED.one_or_none(connection, values)
    return row


def candidates(connection: Connection, profile: Profile) -> list[Candidate]:
    """Live workers of the profile that have a free slot, at most 256."""
    return [Candidate(*row) for row in lifecycle.CANDIDATES.all(connection, _of_profile(profile))]


def _of_profile(profile: Profile) -> dict[str, Any]:
    return {
        "of_profile": profile.profile_id,
        "of_declared": profile.declared_hash,
        "of_environment": profile.environment,
    }


def place(connection: Connection, found: list[Candidate], loads: Loads, race: Race) -> Any | None:
    """A slot and a UID number of the best of the workers; None when there is none. Raises SlotTaken: look again, so
    that a burst spreads by what is true and not by what each of it saw first."""
    if not found:
        return None
    ranked = placement.rank(found, loads([each.worker_id for each in found]), [random.random() for _ in found])
    bound = placement.bound(ranked) if race.is_choosy else None
    worker = reserve(connection, ranked[0].worker_id, ranked[0].epoch, bound)
    if worker is None:
        raise SlotTaken
    return worker


def reserve(connection: Connection, worker_id: str, epoch: int, bound: int | None = None) -> Any | None:
    """Take one slot and the next UID number of the worker; None when there is none left, or more than ``bound`` are
    taken. Locks the worker's row."""
    values = {"of_worker": worker_id, "of_epoch": epoch, "bound": _NO_BOUND if bound is None else bound}
    return _reserved(connection, worker_id, lifecycle.RESERVE.run(connection, values))


def reserve_at_home(connection: Connection, worker_id: str, epoch: int) -> Any | None:
    """The same on a worker that takes nothing new, for a sandbox that has its files there."""
    moved = lifecycle.RESERVE_AT_HOME.run(connection, {"of_worker": worker_id, "of_epoch": epoch})
    return _reserved(connection, worker_id, moved)


def _reserved(connection: Connection, worker_id: str, moved: int) -> Any | None:
    return lifecycle.RESERVED.one_or_none(connection, {"of_worker": worker_id}) if moved == 1 else None


def first_generation(connection: Connection) -> int:
    """Of a sandbox that has no row."""
    return int(lifecycle.FIRST_GENERATION.all(connection, {})[0].first_generation)


def queues(connection: Connection, worker_ids: Sequence[str]) -> list[str]:
    return list(connection.execute(select(_w.queue).where(_w.worker_id.in_(worker_ids))).scalars())


def give_back(connection: Connection, worker_id: str, slots: int = 1) -> None:
    lifecycle.GIVE_BACK.run(connection, {"of_worker": worker_id, "slots": slots})


def release_now(connection: Connection, row: Any, reason: str, by: str) -> None:
    """A suspended sandbox without files on any worker is RELEASED at once. The caller holds its row."""
    key = SandboxKey(row.tenant_id, row.sandbox_id)
    connection.execute(
        update(sandboxes)
        .where(is_key(key), _s.generation == row.generation, _s.status == SandboxStatus.SUSPENDED)
        .values(released_values(Workspace.NEW))
    )
    close_history(connection, key, row.generation, reason, by)


def take_slot(connection: Connection, worker_id: str) -> None:
    """Beyond its capacity, too."""
    suspension.TAKE_SLOT.run(connection, {"of_worker": worker_id})


def neighbours(connection: Connection, root_id: str, profile: Profile) -> list[Candidate]:
    """Live workers over the shared root that have a free slot, at most 256."""
    values = {"of_root": root_id, **_of_profile(profile)}
    return [Candidate(*row) for row in suspension.NEIGHBOURS.all(connection, values)]


def held_uids(connection: Connection, root_id: str) -> set[int]:
    """UIDs that nobody else may get on this root."""
    rows = connection.execute(select(_s.held_uid).where(_s.root_id == root_id, _s.held_uid.is_not(None)))
    return {row[0] for row in rows}


def is_uid_held(connection: Connection, root_id: str, uid: int) -> bool:
    return lifecycle.UID_HOLDER.one_or_none(connection, {"of_root": root_id, "of_uid": uid}) is not None


def holds_uid(worker_id: str | ColumnElement[str]) -> ColumnElement[bool]:
    """Sandboxes of the worker that are live, or whose UID is not clean yet."""
    return and_(_s.worker_id == worker_id, _s.held_uid.is_not(None))


def slots_held(worker_id: str | ColumnElement[str]) -> ColumnElement[int]:
    """How many sandboxes hold a slot of the worker, as a scalar subquery."""
    return (
        select(func.count())
        .select_from(sandboxes)
        .where(holds_uid(worker_id), _s.status.in_(HOLDS_SLOT))
        .correlate(workers)
        .scalar_subquery()
    )


def recount(connection: Connection, worker_id: str) -> tuple[int, int] | None:
    """Set ``reserved`` to what is held; returns (was, is) where that differed."""
    # Whoever changes the number holds this row, so that the count that follows misses nothing that is under way.
    locked = select(_w.reserved).where(_w.worker_id == worker_id).with_for_update()
    was = connection.execute(locked).scalar_one()
    held = connection.execute(select(slots_held(worker_id))).scalar_one()
    if held == was:
        return None
    connection.execute(update(workers).where(_w.worker_id == worker_id).values(reserved=held))
    return was, held


def open_history(connection: Connection, key: SandboxKey, generation: int, worker_id: str, at_us: int, by: str) -> None:
    values = {"generation": generation, "worker_id": worker_id, "started_us": at_us, "created_by": by[:128]}
    lifecycle.OPEN_HISTORY.run(connection, {**key._asdict(), **values})


def close_history(connection: Connection, key: SandboxKey, generation: int, reason: str, by: str) -> None:
    values = {"of_generation": generation, "reason": reason[:64], "closer": by[:128]}
    lifecycle.CLOSE_HISTORY.run(connection, {**statements.of_key(key), **values})


def roll_history(connection: Connection, which: ColumnElement[bool], steps: int, reason: str, by: str) -> None:
    """Close the generation of each sandbox that ``which`` finds and open the one that is ``steps`` later."""
    h = sandbox_history.c
    same = and_(h.tenant_id == _s.tenant_id, h.sandbox_id == _s.sandbox_id, h.generation == _s.generation)
    connection.execute(
        update(sandbox_history)
        .where(h.released_us.is_(None), select(_s.sandbox_id).where(same, which).correlate(sandbox_history).exists())
        .values(released_us=now_us(), release_reason=reason[:64], released_by=by[:128])
    )
    columns: dict[str, Any] = {
        "tenant_id": _s.tenant_id,
        "sandbox_id": _s.sandbox_id,
        "generation": _s.generation + steps,
        "worker_id": _s.worker_id,
        "started_us": now_us(),
        "created_by": literal(by[:128]),
    }
    connection.execute(insert(sandbox_history).from_select(list(columns), select(*columns.values()).where(which)))


def free_quarantined(connection: Connection, worker_id: str) -> None:
    """UIDs of the worker's released sandboxes that were still held: it has come back and cleaned up."""
    connection.execute(
        update(sandboxes).where(holds_uid(worker_id), _s.status == SandboxStatus.RELEASED).values(held_uid=None)
    )


def free_uid(connection: Connection, worker: Any, scatter: bool) -> int:
    """The worker's next UID, or the nearest one after it that nobody holds; with ``scatter`` after a random one. The
    worker's row is locked by us."""
    first = random.randint(worker.uid_start, worker.uid_end) if scatter else worker.next_uid
    if not is_uid_held(connection, worker.root_id, first):
        return int(first)
    taken = held_uids(connection, worker.root_id)
    size = worker.uid_end - worker.uid_start + 1
    for step in range(1, size):
        uid = worker.uid_start + (first - worker.uid_start + step) % size
        if uid not in taken:
            return int(uid)
    raise NoWorkerAvailable("Every UID of the worker is in use; widen SANDBOX_UID_START..UID_END or release sandboxes.")


def is_only_stored(row: Any) -> bool:
    """Whether the files are in the object store and not, or not yet, on the disk of the worker that is to have them."""
    restoring = row.status == SandboxStatus.ASSIGNED and row.workspace == Workspace.RESTORED and row.ready_us is None
    return row.snapshot is not None and restoring


def released_values(workspace: Workspace) -> dict[str, Any]:
    """The columns of a sandbox that has become RELEASED. ``workspace`` is what the next generation will be told."""
    return {**lifecycle.RELEASED_VALUES, "workspace": workspace}
