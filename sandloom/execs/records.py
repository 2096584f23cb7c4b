"""What the exec service takes and hands out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sandloom.execs.states import TERMINAL, ExecStatus
from sandloom.ids import ExecKey
from sandloom.sandboxes.records import Fence


@dataclass(frozen=True, slots=True)
class ExecRequest:
    """A command as it was asked for, already validated against the wire model."""

    exec_id: str
    argv: tuple[str, ...]
    cwd: str = "/workspace"
    env: Mapping[str, str] = field(default_factory=dict)
    timeout_seconds: int | None = None
    exec_scope: str | None = None
    stdin: bytes | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    limits: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Exec:
    """One command and what became of it. Times are database microseconds since the epoch.

    ``usage`` has ``cpu_ms, max_rss_bytes, pids_peak, io_bytes, oom_killed``. ``stdout`` and ``stderr`` are None where
    they were not asked for.
    """

    key: ExecKey
    generation: int
    worker_id: str
    worker_epoch: int
    status: ExecStatus
    exec_scope: str | None
    request: ExecRequest
    timeout_seconds: int
    exit_code: int | None
    signal: int | None
    reason: str | None
    detail: str | None
    error: str | None
    truncated: bool
    usage: Mapping[str, Any]
    duration_ms: int | None
    last_seq: int
    queued_us: int
    started_us: int | None
    finished_us: int | None
    cancel_us: int | None
    task_id: str | None
    stdout: bytes | None = None
    stderr: bytes | None = None

    @property
    def terminal(self) -> bool:
        return self.status in TERMINAL

    @property
    def fence(self) -> Fence:
        return Fence(self.key.sandbox, self.generation, self.worker_id, self.worker_epoch)


@dataclass(frozen=True, slots=True)
class Event:
    """One entry of an exec's trace. ``stdout`` and ``stderr`` carry raw bytes, other kinds UTF-8 JSON."""

    seq: int
    kind: str
    data: bytes
    at_us: int


@dataclass(frozen=True, slots=True)
class EventPage:
    """Events after a cursor. ``terminal``: the exec has ended, so nothing comes after ``last_seq``."""

    events: tuple[Event, ...]
    last_seq: int
    terminal: bool
    first_available_seq: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a command ended, as its worker saw it."""

    status: ExecStatus
    reason: str
    exit_code: int | None = None
    signal: int | None = None
    detail: str | None = None
    error: str | None = None
    truncated: bool = False
    usage: Mapping[str, Any] = field(default_factory=dict)
    duration_ms: int = 0


@dataclass(frozen=True, slots=True)
class OpenExec:
    """A command of a worker that has not ended."""

    key: ExecKey
    generation: int
    status: ExecStatus
    cancel_us: int | None
    queued_us: int


@dataclass(frozen=True, slots=True)
class CancelResult:
    """``cancelled``: this call ended it or asked for its end. ``ring_worker``: it runs, so its worker must be told."""

    exec: Exec
    cancelled: bool
    ring_worker: bool
