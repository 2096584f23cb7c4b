"""What health and diagnostics say about the fleet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import Field

from api.services import Services
from sandloom import __version__
from sandloom.clock import rfc3339
from sandloom.contracts.rest import Answer
from sandloom.db import tallies
from sandloom.errors import Unavailable
from sandloom.fleet.records import Worker, WorkerStatus
from sandloom.sandboxes.staying import Staying, staying

_MAX_WORKERS = 1000
_UNKNOWN: dict[str, Any] = {}


class WorkerHealth(Answer):
    """The least loaded live worker of this deployment's profile, as it described itself."""

    id: str
    epoch: int
    profile_hash: str
    running_sessions: int
    running_execs: int
    reclamation: dict[str, Any]
    orphan_reaper: dict[str, Any] = Field(description="its periods, and what maintenance did in the whole deployment")
    disk: dict[str, Any]
    capabilities: dict[str, Any]
    broker: dict[str, Any] = Field(description="`ready`: it heard its own ping; `round_trip_ms`, `warnings`")


class WorkerCount(Answer):
    live: int
    total: int


class Health(Answer):
    status: Literal["UP", "DEGRADED"]
    version: str
    environment: str
    dependencies: dict[str, str]
    worker: WorkerHealth | None
    workers: WorkerCount


class Drain(Answer):
    """How far a worker is from being empty. Asleep: on its own disk; what only sleeps elsewhere does not count."""

    since: str | None
    running: int
    quiet: int
    asleep: int
    done: bool = Field(description="the worker may stop for good, and nothing is lost with it")
    held_by: dict[str, int] = Field(description="codes of what kept sandboxes there at its last renewal, and how many")


class WorkerState(Answer):
    """What a worker says of itself."""

    status: Literal["UP", "DRAINING"]
    worker_id: str
    worker_epoch: int
    capacity: int
    running_sessions: int
    running_execs: int
    disk: dict[str, int]


class WorkerRow(Answer):
    worker_id: str
    worker_epoch: int
    status: str
    profile_id: str
    profile_hash: str
    isolation_level: str
    storage_mode: str
    capacity: int
    running_sessions: int
    remaining_sessions: int
    exec_slots: int
    running_execs: int
    queued_execs: int
    short_of: str | None = Field(description="what the worker lacks to take sandboxes: disk, inodes, broker")
    drain: Drain | None = Field(description="while an operator wants the worker empty")


class Totals(Answer):
    """Over the live workers. Sessions are sandboxes; commands are bounded per sandbox, so their slots do not add up."""

    session_capacity: int
    running_sessions: int
    remaining_sessions: int
    running_execs: int
    existing_session_exec_capacity: int
    existing_session_free_execs: int


class Runtime(Answer):
    workers: list[WorkerRow]
    excluded_workers: int = Field(description="workers without a fresh lease")
    totals: Totals
    queue_length: int = Field(description="commands that wait for a worker")
    truncated: bool = Field(description="there are more workers than the answer holds")


def health(services: Services) -> Health:
    """Never raises for a part that is down: that is what the answer is for."""
    try:
        workers, reaped = services.fleet.list_workers(_MAX_WORKERS), tallies.counts(services.db)
        database = "UP"
    except Unavailable:
        workers, reaped, database = [], {}, "DOWN"
    live = [worker for worker in workers if worker.live]
    mine = [worker for worker in live if worker.declared_hash == services.settings.profile_hash]
    least = min(
        mine,
        key=lambda worker: (not _hears(worker), worker.reserved / worker.capacity, worker.worker_id),
        default=None,
    )
    bus = "UP" if services.bus.connected else "DOWN"
    broker = "DOWN" if services.publisher.failing else "UP"
    up = least is not None and _hears(least) and database == bus == broker == "UP"
    return Health(
        status="UP" if up else "DEGRADED",
        version=__version__,
        environment=services.settings.environment,
        dependencies={"database": database, "bus": bus, "broker": broker},
        worker=None if least is None else _worker_health(least, reaped),
        workers=WorkerCount(live=len(live), total=len(workers)),
    )


def runtime(services: Services) -> Runtime:
    """Capacity and use over the live workers."""
    known = services.fleet.list_workers(_MAX_WORKERS + 1)
    live = [worker for worker in known[:_MAX_WORKERS] if worker.live]
    counts = services.execs.open_counts()
    rows = _rows(services, live, counts)
    return Runtime(
        workers=rows,
        excluded_workers=len(known[:_MAX_WORKERS]) - len(live),
        totals=_totals(rows, services.settings.max_parallel_execs_per_sandbox),
        queue_length=sum(queued for queued, _ in counts.values()),
        truncated=len(known) > _MAX_WORKERS,
    )


def _totals(rows: Sequence[WorkerRow], execs_per_sandbox: int) -> Totals:
    sessions, running = sum(row.running_sessions for row in rows), sum(row.running_execs for row in rows)
    return Totals(
        session_capacity=sum(row.capacity for row in rows),
        running_sessions=sessions,
        remaining_sessions=sum(row.remaining_sessions for row in rows),
        running_execs=running,
        existing_session_exec_capacity=sessions * execs_per_sandbox,
        existing_session_free_execs=max(0, sessions * execs_per_sandbox - running),
    )


def worker_row(services: Services, worker: Worker) -> WorkerRow:
    """One worker, whether it lives or not."""
    return _rows(services, [worker], services.execs.open_counts())[0]


def _rows(services: Services, workers: Sequence[Worker], counts: Mapping[str, tuple[int, int]]) -> list[WorkerRow]:
    left = staying(services.db, [worker.worker_id for worker in workers if worker.drain_us is not None])
    return [
        _row(worker, *counts.get(worker.worker_id, (0, 0)), left.get(worker.worker_id, Staying())) for worker in workers
    ]


def _drain(worker: Worker, left: Staying) -> Drain | None:
    if worker.drain_us is None:
        return None
    held_by = worker.load.get("held_by")
    return Drain(
        since=rfc3339(worker.drain_us),
        running=left.running,
        quiet=left.quiet,
        asleep=left.asleep,
        done=left.none,
        held_by=held_by if isinstance(held_by, dict) and not left.none else {},
    )


def _row(worker: Worker, queued: int, running: int, left: Staying) -> WorkerRow:
    takes_new = worker.status is WorkerStatus.ACTIVE
    return WorkerRow(
        worker_id=worker.worker_id,
        worker_epoch=worker.epoch,
        status=str(worker.status),
        profile_id=worker.profile_id,
        profile_hash=worker.declared_hash,
        isolation_level={1: "basic", 2: "standard", 3: "strict"}.get(worker.isolation_rank, "unknown"),
        storage_mode=worker.storage_mode,
        capacity=worker.capacity,
        running_sessions=worker.reserved,
        remaining_sessions=max(0, worker.capacity - worker.reserved) if takes_new else 0,
        exec_slots=worker.exec_slots,
        running_execs=running,
        queued_execs=queued,
        short_of=worker.short_of,
        drain=_drain(worker, left),
    )


def _hears(worker: Worker) -> bool:
    """Whether it says that messages reach it. One that only just registered has not said anything yet."""
    broker = worker.load.get("broker")
    return not isinstance(broker, dict) or broker.get("ready") is not False


def _worker_health(worker: Worker, reaped: Mapping[str, int]) -> WorkerHealth:
    def part(name: str) -> dict[str, Any]:
        found = worker.load.get(name) or worker.node.get(name)
        return found if isinstance(found, dict) else _UNKNOWN

    return WorkerHealth(
        id=worker.worker_id,
        epoch=worker.epoch,
        profile_hash=worker.declared_hash,
        running_sessions=worker.reserved,
        running_execs=int(worker.load.get("running_execs") or 0),
        reclamation=part("reclamation"),
        orphan_reaper={**part("orphan_reaper"), **reaped},
        disk=part("disk"),
        capabilities=part("capabilities"),
        broker=part("broker"),
    )
