"""Whether a command may be admitted. Pure: one decision over what one query saw."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from sandloom.errors import (
    ExecIdConflict,
    LimitsExceeded,
    ParallelLimit,
    QueueFull,
    SandboxNotReady,
    SandloomError,
    ScopeBusy,
)  # fmt: skip
from sandloom.execs.records import ExecRequest
from sandloom.ids import ExecKey
from sandloom.sandboxes.diagnose import OwnedRow, refusal
from sandloom.sandboxes.states import SandboxStatus
from sandloom.settings import Settings


@dataclass(frozen=True, slots=True)
class ExecPolicy:
    """What the deployment decides about commands.

    ``limits``: the highest that a command may ask for by name, ``None`` for any; a name that is missing cannot be
    enforced.
    """

    default_timeout_seconds: int = 300
    max_parallel_execs_per_sandbox: int = 16
    max_queued_execs: int = 10_000
    max_queued_seconds: int = 3600
    limits: Mapping[str, int | None] = field(default_factory=lambda: limits_allowed(enforced=True))

    @classmethod
    def of(cls, settings: Settings) -> ExecPolicy:
        return cls(
            default_timeout_seconds=settings.default_timeout_seconds,
            max_parallel_execs_per_sandbox=settings.max_parallel_execs_per_sandbox,
            max_queued_execs=settings.max_queued_execs,
            max_queued_seconds=settings.max_queued_seconds,
            limits=limits_allowed(
                enforced=settings.resource_control != "off",
                memory_bytes=settings.budget_memory_bytes,
                cpu_percent=settings.budget_cpu_percent,
                pids=settings.budget_pids,
            ),
        )


def limits_allowed(
    *,
    enforced: bool,
    memory_bytes: int | None = None,
    cpu_percent: int | None = None,
    pids: int | None = None,
) -> Mapping[str, int | None]:
    """``ExecPolicy.limits`` of a deployment with these budgets for a sandbox."""
    return {"memory_bytes": memory_bytes, "cpu_percent": cpu_percent, "pids": pids} if enforced else {}


def limits_exceeded(requested: Mapping[str, int], policy: ExecPolicy) -> LimitsExceeded | None:
    """The error unless each limit can be enforced and is at most the deployment's."""
    for name, value in requested.items():
        if name not in policy.limits:
            return LimitsExceeded(f"This deployment cannot enforce limits.{name}; leave it out.")
        highest = policy.limits[name]
        if highest is not None and value > highest:
            return LimitsExceeded(f"limits.{name} is above the {highest} that this deployment allows.")
    return None


class AdmissionRow(OwnedRow, Protocol):
    """A sandbox row with its owner and what else admission needs to know."""

    @property
    def active_execs(self) -> int: ...
    @property
    def exclusive_exec_id(self) -> str | None: ...
    @property
    def queued(self) -> int: ...
    @property
    def scope_taken(self) -> bool: ...


def refusal_to_admit(
    row: AdmissionRow, generation: int, exec_scope: str | None, policy: ExecPolicy
) -> SandloomError | None:
    """The error that answers a new command, or None when it may be admitted.

    A command without a scope takes the sandbox for itself alone.
    """
    error = refusal(row, generation)
    if error is not None:
        return error
    if row.status == SandboxStatus.ASSIGNED:
        return SandboxNotReady()
    if row.exclusive_exec_id is not None:
        return ScopeBusy("A command without exec_scope is running and holds the whole sandbox.")
    if exec_scope is None and row.active_execs > 0:
        return ScopeBusy("A command without exec_scope needs the whole sandbox, and other commands are running.")
    if row.scope_taken:
        return ScopeBusy("A command of this exec_scope is running.")
    if row.active_execs >= policy.max_parallel_execs_per_sandbox:
        return ParallelLimit(f"The sandbox already runs {row.active_execs} commands, as many as it may.")
    if row.queued >= policy.max_queued_execs:
        return QueueFull(retry_after_seconds=5)
    return None


def request_document(request: ExecRequest) -> dict[str, Any]:
    """What is kept of a request: everything but its standard input and its labels, which have columns of their own."""
    return {
        "argv": list(request.argv),
        "cwd": request.cwd,
        "env": dict(request.env),
        "timeout_seconds": request.timeout_seconds,
        "limits": dict(request.limits),
    }


def request_hash(request: ExecRequest) -> str:
    """Identity of a request, generation apart: SHA-256 over its canonical JSON and standard input."""
    document = request_document(request) | {
        "exec_scope": request.exec_scope,
        "labels": dict(request.labels),
        "stdin": hashlib.sha256(request.stdin).hexdigest() if request.stdin is not None else None,
    }
    canonical = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def check_same_request(stored_hash: str, request: ExecRequest) -> None:
    """Raises ExecIdConflict unless the stored exec was asked for by the same request."""
    if stored_hash != request_hash(request):
        raise ExecIdConflict


@dataclass(frozen=True, slots=True)
class Admission:
    """A command that asks to be admitted, in the form of the statements that do it."""

    key: ExecKey
    generation: int
    request: ExecRequest
    timeout_seconds: int
    task_id: str | None
    ring_after_us: int
    policy: ExecPolicy

    def weighed_values(self) -> dict[str, Any]:
        """``statements.ADMISSION``, the key aside."""
        return {
            "of_scope": self.request.exec_scope,
            "of_parallel": self.policy.max_parallel_execs_per_sandbox,
            "of_queued_below": self.policy.max_queued_execs,
        }

    def place_values(self) -> dict[str, Any]:
        """``statements.PLACE``."""
        alone = self.request.exec_scope is None
        return {
            "of_generation": self.generation,
            "of_active_below": 1 if alone else self.policy.max_parallel_execs_per_sandbox,
            "exclusive": self.request.exec_id if alone else None,
        }

    def request_values(self) -> dict[str, Any]:
        """``statements.OF_REQUEST``."""
        request = self.request
        return {
            "exec_id": request.exec_id,
            "exec_scope": request.exec_scope,
            "active_scope": request.exec_scope,
            "request_hash": request_hash(request),
            "request": json.dumps(request_document(request)),
            "labels": json.dumps(dict(request.labels)),
            "stdin": request.stdin,
            "timeout_seconds": self.timeout_seconds,
            "task_id": self.task_id,
        }
