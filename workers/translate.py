"""The one place that knows both vocabularies: the service's and the engine's. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any

from sandloom.errors import (
    ArchiveInvalid,
    CursorInvalid,
    DirectoryNotEmpty,
    DiskFull,
    EnvironmentRefused,
    FileAccessDenied,
    FileExists,
    FileKindUnsupported,
    FileMissing,
    FilePathLocked,
    FileTooLarge,
    LaunchFailed,
    LimitsExceeded,
    PathInvalid,
    ProgramNotExecutable,
    ProgramNotFound,
    SandloomError,
    ValidationFailed,
    WorkerLost,
    WorkingDirectoryUnavailable,
    WorkspaceFailed,
)  # fmt: skip
from sandloom.execs.records import Exec, Outcome
from sandloom.execs.states import ExecStatus, Reason, status_for
from sandloom.execution.file_faults import FaultKind, FileFault
from sandloom.execution.spec import Budgets, Directories, LaunchFault, Limits, Plan, Spec, Usage, Verdict
from sandloom.ids import SandboxKey
from sandloom.settings import Settings


class Ending(StrEnum):
    """Why this node ended a command before it was done."""

    CANCELLED = "cancelled"
    RELEASED = "released"
    STOPPED = "stopped"
    FENCED = "fenced"


_ENDING_DETAIL = {
    Ending.CANCELLED: "the command was cancelled",
    Ending.RELEASED: "the sandbox was released",
    Ending.STOPPED: "the worker was stopped",
    Ending.FENCED: "the worker lost the right to run this command",
}

_LAUNCH: Mapping[LaunchFault, type[SandloomError]] = {
    LaunchFault.PROGRAM_NOT_FOUND: ProgramNotFound,
    LaunchFault.PROGRAM_NOT_EXECUTABLE: ProgramNotExecutable,
    LaunchFault.ARGUMENTS_TOO_LONG: ValidationFailed,
    LaunchFault.CWD_UNAVAILABLE: WorkingDirectoryUnavailable,
    LaunchFault.PROCESS_LIMIT: LimitsExceeded,
    LaunchFault.ISOLATION_FAILED: LaunchFailed,
    LaunchFault.SPAWNER_LOST: WorkerLost,
}
#: A shell's codes for a program that is not there and one that cannot run.
_LAUNCH_EXIT_CODE = {LaunchFault.PROGRAM_NOT_FOUND: 127, LaunchFault.PROGRAM_NOT_EXECUTABLE: 126}
#: What a client may read of these would name paths of the host.
_OPERATORS_ONLY = frozenset({LaunchFault.ISOLATION_FAILED, LaunchFault.SPAWNER_LOST})

#: Plain values all: ``dataclasses.asdict`` would copy each of them deeply.
_USAGE = tuple(field.name for field in fields(Usage))

_FILES: Mapping[FaultKind, type[SandloomError]] = {
    FaultKind.PATH_INVALID: PathInvalid,
    FaultKind.CURSOR_INVALID: CursorInvalid,
    FaultKind.ARCHIVE_INVALID: ArchiveInvalid,
    FaultKind.PATTERN_INVALID: ValidationFailed,
    FaultKind.NOT_FOUND: FileMissing,
    FaultKind.EXISTS: FileExists,
    FaultKind.WRONG_KIND: FileKindUnsupported,
    FaultKind.TOO_LARGE: FileTooLarge,
    FaultKind.NOT_EMPTY: DirectoryNotEmpty,
    FaultKind.LOCKED: FilePathLocked,
    FaultKind.ACCESS: FileAccessDenied,
    FaultKind.DISK_FULL: DiskFull,
    FaultKind.FAILED: WorkspaceFailed,
}


@dataclass(frozen=True, slots=True)
class Home:
    """Where a sandbox lives on this host and as whom. ``templates``: see ``Spec``."""

    uid: int
    gid: int
    directories: Directories
    templates: tuple[tuple[str, str], ...] = ()


def limits_of(settings: Settings) -> Limits:
    return Limits(
        cpu_seconds=settings.cpu_seconds,
        max_processes=settings.max_processes,
        max_open_files=settings.max_open_files,
        max_file_size_bytes=settings.max_file_size_bytes,
        tmpfs_bytes=settings.tmpfs_bytes,
        shm_bytes=settings.shm_bytes,
    )


def budgets_of(settings: Settings) -> Budgets:
    return Budgets(
        settings.budget_memory_bytes,
        settings.budget_cpu_percent,
        settings.budget_pids,
        settings.budget_disk_bytes,
        settings.budget_inodes,
    )


def group_of(key: SandboxKey) -> str:
    """The name of the sandbox's cgroup."""
    return hashlib.sha256("/".join(key).encode()).hexdigest()[:24]


def spec_of(
    record: Exec, home: Home, plan: Plan, settings: Settings, limits: Limits, runtime_env: Mapping[str, str]
) -> Spec:
    """The command as the engine takes it."""
    request = record.request
    return Spec(
        name=f"{record.key.sandbox_id}/{record.key.exec_id}",
        plan=plan,
        uid=home.uid,
        gid=home.gid,
        home_dirs=home.directories,
        argv=tuple(request.argv),
        cwd=request.cwd,
        env=request.env,
        timeout_seconds=float(record.timeout_seconds),
        terminate_grace_seconds=float(settings.terminate_grace_seconds),
        limits=limits,
        stdin=request.stdin,
        max_output_bytes=settings.max_output_bytes,
        runtime_env=runtime_env,
        group=group_of(record.key.sandbox),
        budgets=budgets_of(settings),
        own_budgets=Budgets(**request.limits),
        templates=home.templates,
    )


def outcome_of(verdict: Verdict, ending: Ending | None = None) -> Outcome:
    """The receipt for a verdict. ``ending``: what this node did to it, which counts unless it ended by itself first."""
    if verdict.error is not None:
        return _not_started(verdict, verdict.error)
    reason = Reason(verdict.reason.value)
    detail = verdict.detail or None
    if reason is Reason.CANCELLED and ending is not None:
        reason = Reason.CANCELLED if ending in (Ending.CANCELLED, Ending.RELEASED) else Reason.WORKER_LOST
        detail = detail or _ENDING_DETAIL[ending]
    return Outcome(
        status=status_for(reason, verdict.exit_code),
        reason=reason.value,
        exit_code=verdict.exit_code,
        signal=verdict.signal,
        detail=detail,
        error=WorkerLost.code if reason is Reason.WORKER_LOST else None,
        truncated=verdict.truncated,
        usage=_usage(verdict),
        duration_ms=verdict.duration_ms,
    )


def _usage(verdict: Verdict) -> dict[str, Any]:
    return {name: getattr(verdict.usage, name) for name in _USAGE}


def _not_started(verdict: Verdict, fault: LaunchFault) -> Outcome:
    error = _LAUNCH[fault]
    lost = fault is LaunchFault.SPAWNER_LOST
    detail = None if fault in _OPERATORS_ONLY else verdict.detail
    return Outcome(
        status=ExecStatus.WORKER_LOST if lost else ExecStatus.FAILED,
        reason=(Reason.WORKER_LOST if lost else Reason.NOT_STARTED).value,
        exit_code=_LAUNCH_EXIT_CODE.get(fault),
        detail=detail or error().detail,
        error=error.code,
        truncated=verdict.truncated,
        usage=_usage(verdict),
        duration_ms=verdict.duration_ms,
    )


def refused(error: SandloomError) -> Outcome:
    """The receipt of a command that this node did not start."""
    return Outcome(ExecStatus.FAILED, Reason.NOT_STARTED.value, detail=error.detail, error=error.code)


def disk_refused(detail: str) -> Outcome:
    """The receipt of a command that is not started because its sandbox has too much on the disk."""
    advice = f"{detail}; delete files through the file API first"
    return Outcome(ExecStatus.FAILED, Reason.DISK.value, detail=advice, error=DiskFull.code)


def lost(detail: str) -> Outcome:
    """The receipt of a command of which nobody knows how far it came."""
    return Outcome(ExecStatus.WORKER_LOST, Reason.WORKER_LOST.value, detail=detail, error=WorkerLost.code)


def env_refused(detail: str) -> SandloomError:
    """The engine's refusal of a spec, as the service says it."""
    return EnvironmentRefused(detail)


def budgets_refused(spec: Spec) -> SandloomError:
    """Why a command cannot be bounded: what it asked for itself, or what the deployment lays down."""
    if spec.own_budgets.controllers:
        return LimitsExceeded("The worker cannot enforce the limits that the command asks for.")
    return LaunchFailed("The worker cannot hold the budgets of the sandbox at the moment.")


def file_error(fault: FileFault) -> SandloomError:
    extra: dict[str, Any] = dict(fault.extra)
    return _FILES[fault.kind](fault.detail, **extra)
