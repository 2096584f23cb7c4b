"""A fleet that exists in rows only, and what must be true of these rows at any moment."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from sqlalchemy import Connection, delete, func, select, update

from sandloom.broker.api_keys import KeyMint
from sandloom.db import Database, now_us
from sandloom.db.tables import (
    exec_events,
    execs,
    loose_snapshots,
    metadata,
    sandbox_history,
    sandboxes,
    usage_records,
    workers,
)  # fmt: skip
from sandloom.execs.admission import ExecPolicy
from sandloom.execs.records import Exec, ExecRequest, Outcome
from sandloom.execs.service import Execs
from sandloom.execs.states import TERMINAL, ExecStatus, Reason
from sandloom.fleet.records import NodeInfo, Registration
from sandloom.fleet.service import Fleet, Lease
from sandloom.ids import ExecKey, SandboxKey
from sandloom.reclaim.adoption import register
from sandloom.reclaim.policy import ReclaimPolicy
from sandloom.reclaim.prune import Prune
from sandloom.reclaim.service import Reclaim
from sandloom.reclaim.suspended import Suspended
from sandloom.sandboxes.forks import Forks
from sandloom.sandboxes.loose import LooseSnapshots
from sandloom.sandboxes.records import Fence, Route
from sandloom.sandboxes.service import Sandboxes, SandboxPolicy
from sandloom.sandboxes.statements import SERVICE_HOLD
from sandloom.sandboxes.states import ALIVE, HOLDS_SLOT, SandboxStatus
from sandloom.sandboxes.suspension import Suspensions
from sandloom.tenants.keys import Keys
from sandloom.tenants.service import Tenants
from sandloom.tenants.usage import Usage

T = TypeVar("T")

TENANT = "default"
PROFILE = "coding-default"
HASH = "0123456789abcdef"
MINT = KeyMint("secret-key-of-this-test")
DONE = Outcome(ExecStatus.SUCCEEDED, Reason.EXIT, exit_code=0, duration_ms=5, usage={"cpu_ms": 3})
REFUSED = Outcome(ExecStatus.FAILED, Reason.NOT_STARTED, error="SANDBOX_WORKSPACE_FAILED")

Dump = dict[str, list[tuple[Any, ...]]]


def key(sandbox_id: str = "box", tenant_id: str = TENANT) -> SandboxKey:
    return SandboxKey(tenant_id, sandbox_id)


def request(exec_id: str = "run", scope: str | None = None, **values: Any) -> ExecRequest:
    return ExecRequest(exec_id, ("true",), exec_scope=scope, **values)


class World:
    """The services over one database."""

    def __init__(
        self, db: Database, *, execs: ExecPolicy | None = None, reclaim: ReclaimPolicy | None = None,
        kept_seconds: float = 60,
    ) -> None:  # fmt: skip
        self.db = db
        self.fleet = Fleet(db)
        self.tenants = Tenants(db, kept_seconds)
        self.usage = Usage(db)
        self.keys = Keys(db, MINT, kept_seconds)
        self.sandboxes = Sandboxes(db, SandboxPolicy(HASH), tenants=self.tenants)
        self.execs = Execs(db, execs or ExecPolicy(), tenants=self.tenants)
        self.suspensions = Suspensions(db, SandboxPolicy(HASH))
        self.forks = Forks(db, SandboxPolicy(HASH), self.tenants)
        self.loose = LooseSnapshots(db)
        self._policy = reclaim or ReclaimPolicy()
        self.reclaim_policy()

    #: Of the first generation of "box" on the first epoch of "w1".
    fence1 = Fence(key(), 1, "w1", 1)

    def reclaim_policy(self, **values: Any) -> None:
        """Maintenance with other periods."""
        self._policy = dataclasses.replace(self._policy, **values)
        self.reclaim = Reclaim(self.db, self._policy)
        self.dormant = Suspended(self.db, self._policy)
        self.pruning = Prune(self.db, self._policy)

    # --- moving ---

    def register(self, worker_id: str = "w1", **values: Any) -> Registration:
        return register(self.db, node(worker_id, **values))

    def resolve(self, sandbox_id: str = "box", *, scope: str = "scope", tenant_id: str = TENANT) -> Route:
        return self.sandboxes.resolve(tenant_id, sandbox_id, scope, PROFILE, "tester")

    def ready(self, sandbox_id: str = "box", tenant_id: str = TENANT) -> Route:
        return self.sandboxes.mark_ready(self.resolve(sandbox_id, tenant_id=tenant_id).fence)

    def started(self, sandbox_id: str = "box", **values: Any) -> Route:
        """A worker, and a sandbox that is READY on it."""
        self.register(**values)
        return self.ready(sandbox_id)

    def suspended(self, snapshot: str | None = None, **values: Any) -> Route:
        """A worker, and a sandbox that sleeps on it."""
        route = self.started(**values)
        assert self.suspensions.begin(route.fence)
        assert self.suspensions.finish(route.fence, snapshot)
        return self.sandboxes.get(route.key)

    def queued(self, route: Route, exec_id: str = "run", scope: str | None = None) -> Exec:
        return self.execs.admit(route.key, route.generation, request(exec_id, scope))[0]

    def claim(self, record: Exec) -> Exec | None:
        return self.execs.claim(record.key, record.generation, record.worker_id, record.worker_epoch)

    def running(self, route: Route, exec_id: str = "run", scope: str | None = None) -> Exec:
        claimed = self.claim(self.queued(route, exec_id, scope))
        assert claimed is not None
        return claimed

    def finish(self, record: Exec, outcome: Outcome = DONE, events: Sequence[tuple[str, bytes]] = ()) -> bool:
        return self.execs.finish(record.key, record.worker_id, record.worker_epoch, record.last_seq, events, outcome)

    def released(self, route: Route) -> Route:
        releasing = self.sandboxes.begin_release(route.key, None, "tester", "released")
        assert self.sandboxes.finish_release(releasing.fence)
        return self.sandboxes.get(route.key)

    def restart(self, worker_id: str = "w1", **values: Any) -> Registration:
        """The next epoch of a worker that holds its root, with every directory still there."""
        present = frozenset(SandboxKey(row.tenant_id, row.sandbox_id) for row in self.rows(sandboxes))
        return self.register(worker_id, **{"takeover": True, "present": present, **values})

    def lose(self, worker_id: str = "w1") -> None:
        """What a watcher does that saw the lease lapse."""
        lease = next(lease for lease in self.fleet.leases() if lease.worker_id == worker_id)
        assert self.reclaim.declare_lost(lease)

    # --- behind the services' back ---

    def empty(self) -> None:
        def remove(connection: Connection) -> None:
            for table in reversed(metadata.sorted_tables):
                connection.execute(delete(table))

        self.db.write(remove)

    def forget_activity(self) -> None:
        """Nothing happened in any sandbox for long."""
        self.set(sandboxes, sandboxes.c.sandbox_id.is_not(None), last_active_us=0, look_us=0)

    def set(self, table: Any, condition: Any, **values: Any) -> None:
        """Time that has passed, or damage."""
        self.db.write(lambda connection: connection.execute(update(table).where(condition).values(**values)))

    def set_status(self, sandbox_key: SandboxKey, status: str) -> None:
        self.set(sandboxes, sandboxes.c.sandbox_id == sandbox_key.sandbox_id, status=status)

    def set_orphans_due(self) -> None:
        """Every lease expired long ago."""
        self.set(workers, workers.c.worker_id.is_not(None), lease_expires_us=0)

    # --- looking ---

    def lease_now_us(self) -> int:
        """The database's time, which leases are judged by."""
        return self.db.read(lambda connection: connection.execute(select(now_us())).scalar_one())

    def lease(self, worker_id: str = "w1") -> Lease:
        return next(lease for lease in self.fleet.leases() if lease.worker_id == worker_id)

    def rows(self, table: Any) -> Sequence[Any]:
        query = select(table).order_by(*table.primary_key.columns)
        return self.db.read(lambda connection: connection.execute(query).all())

    def row(self, table: Any) -> Any:
        (found,) = self.rows(table)
        return found

    def exec(self, exec_id: str, sandbox_id: str = "box") -> Exec:
        return self.execs.get(ExecKey(TENANT, sandbox_id, exec_id), output=True)

    def box(self, sandbox_key: SandboxKey) -> Any:
        return next(row for row in self.rows(sandboxes) if (row.tenant_id, row.sandbox_id) == tuple(sandbox_key))

    def now_us(self) -> int:
        """By the database's clock."""
        return self.db.read(lambda connection: connection.execute(select(now_us())).scalar_one())

    def dump(self) -> Dump:
        """Every row of every table."""
        return {table.name: [tuple(row) for row in self.rows(table)] for table in metadata.sorted_tables}

    def events(self, record_key: ExecKey) -> list[tuple[int, str, bytes]]:
        return [(event.seq, event.kind, event.data) for event in self.execs.events(record_key, 0).events]

    def check(self) -> None:
        """Whatever happened, the rows agree with each other."""
        self.db.read(check_rows)


def node(worker_id: str = "w1", **values: Any) -> NodeInfo:
    default = NodeInfo(
        worker_id=worker_id, queue=f"sandloom.worker.{worker_id}", data_endpoint="http://127.0.0.1:1",
        public_key="", profile_id=PROFILE, declared_hash=HASH, effective_hash=HASH, isolation_level="standard",
        storage_mode="local", root_id=f"root-{worker_id}", uid_start=200_000, uid_end=200_999, capacity=20,
        exec_slots=8, lease_ttl_seconds=600, fence_grace_seconds=60,
    )  # fmt: skip
    return dataclasses.replace(default, **values)


def raised(call: Callable[[], T]) -> T | Exception:
    """The result, or what was raised instead."""
    try:
        return call()
    except Exception as error:
        return error


def check_rows(connection: Connection) -> None:
    boxes = connection.execute(select(sandboxes)).all()
    all_execs = connection.execute(select(execs)).all()
    _check_capacity(connection, boxes)
    named = {(box.tenant_id, box.sandbox_id, (box.snapshot or "").partition(".")[0]) for box in boxes}
    loose = {(*row[:2], row.snapshot.partition(".")[0]) for row in connection.execute(select(loose_snapshots)).all()}
    assert not named & loose, "a sandbox names a snapshot that may be removed"
    for box in boxes:
        mine = [e for e in all_execs if (e.tenant_id, e.sandbox_id) == (box.tenant_id, box.sandbox_id)]
        _check_sandbox(connection, box, [e for e in mine if e.open_worker_id is not None])
    for row in all_execs:
        _check_exec(connection, row)


def _check_capacity(connection: Connection, boxes: Sequence[Any]) -> None:
    for worker in connection.execute(select(workers)).all():
        held = [box for box in boxes if box.worker_id == worker.worker_id and box.status in HOLDS_SLOT]
        assert worker.reserved == len(held), f"{worker.worker_id}: reserved {worker.reserved}, held {len(held)}"
    uids = [(box.root_id, box.held_uid) for box in boxes if box.held_uid is not None]
    assert len(uids) == len(set(uids)), "a UID is held twice on one root"


def _check_sandbox(connection: Connection, box: Any, open_execs: Sequence[Any]) -> None:
    name = f"{box.sandbox_id} {box.status}"
    assert box.active_execs == len(open_execs), f"{name}: active {box.active_execs}, open {len(open_execs)}"
    whole = [e.exec_id for e in open_execs if e.exec_scope is None]
    assert whole == ([box.exclusive_exec_id] if box.exclusive_exec_id not in (None, SERVICE_HOLD) else []), name
    assert not whole or len(open_execs) == 1, f"{name}: a lifecycle command beside others"
    for row in open_execs:
        owner = (row.generation, row.worker_id, row.worker_epoch, row.open_worker_id)
        assert owner == (box.generation, box.worker_id, box.worker_epoch, box.worker_id), f"{name}: {row.exec_id}"
    if box.status == SandboxStatus.READY:
        assert not open_execs, name
    if box.status == SandboxStatus.RUNNING:
        assert open_execs, name
    if box.status in HOLDS_SLOT:
        assert box.held_uid == box.sandbox_uid, name
    h = sandbox_history.c
    unreleased = connection.execute(
        select(h.generation).where(
            h.tenant_id == box.tenant_id, h.sandbox_id == box.sandbox_id, h.released_us.is_(None)
        )
    ).scalars()
    assert list(unreleased) == ([box.generation] if box.status in ALIVE else []), f"{name}: history"


def _check_exec(connection: Connection, row: Any) -> None:
    v, u = exec_events.c, usage_records.c
    where = (v.tenant_id == row.tenant_id, v.sandbox_id == row.sandbox_id, v.exec_id == row.exec_id)
    events = connection.execute(select(v.seq, v.kind, v.data).where(*where).order_by(v.seq)).all()
    assert [event.seq for event in events] == list(range(1, row.last_seq + 1)), f"{row.exec_id}: seq"
    ends = [e.seq for e in events if e.kind == "status" and any(s.encode() in bytes(e.data) for s in TERMINAL)]
    terminal = row.status in TERMINAL
    assert ends == ([row.last_seq] if terminal else []), f"{row.exec_id} {row.status}: terminal events {ends}"
    assert (row.open_worker_id is None) == terminal, row.exec_id
    assert row.active_scope == (None if terminal else row.exec_scope), row.exec_id
    assert (row.finished_us is not None) == terminal, row.exec_id
    mine = (u.tenant_id == row.tenant_id, u.sandbox_id == row.sandbox_id, u.exec_id == row.exec_id)
    used = connection.execute(select(func.count()).select_from(usage_records).where(*mine)).scalar_one()
    assert used == (1 if terminal else 0), f"{row.exec_id}: {used} usage rows"
