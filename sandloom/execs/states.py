"""The life of an exec as a table. Pure."""

from __future__ import annotations

from enum import StrEnum


class ExecStatus(StrEnum):
    """Where an exec is in its life."""

    QUEUED = "QUEUED"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    TIMED_OUT = "TIMED_OUT"
    CANCELLED = "CANCELLED"
    WORKER_LOST = "WORKER_LOST"


class Reason(StrEnum):
    """Why an exec ended."""

    EXIT = "exit"
    SIGNAL = "signal"
    TIMEOUT = "timeout"
    QUEUE_TIMEOUT = "queue_timeout"
    OOM = "oom"
    PIDS = "pids"
    CPU_LIMIT = "cpu_limit"
    FILE_SIZE = "file_size"
    DISK = "disk"
    OUTPUT_CAP = "output_cap"
    CANCELLED = "cancelled"
    NOT_STARTED = "not_started"
    WORKER_LOST = "worker_lost"


_S = ExecStatus

TERMINAL = frozenset({_S.SUCCEEDED, _S.FAILED, _S.TIMED_OUT, _S.CANCELLED, _S.WORKER_LOST})

MOVES: dict[ExecStatus, frozenset[ExecStatus]] = {
    _S.QUEUED: frozenset({_S.RUNNING, _S.FAILED, _S.TIMED_OUT, _S.CANCELLED, _S.WORKER_LOST}),
    _S.RUNNING: TERMINAL,
    **{status: frozenset() for status in TERMINAL},
}


def status_for(reason: Reason, exit_code: int | None) -> ExecStatus:
    """The terminal status that a reason stands for.

    ``exit`` with code 0 is SUCCEEDED, with another one FAILED; an end by a limit or a signal is FAILED.
    """
    if reason in (Reason.TIMEOUT, Reason.QUEUE_TIMEOUT):
        return _S.TIMED_OUT
    if reason is Reason.CANCELLED:
        return _S.CANCELLED
    if reason is Reason.WORKER_LOST:
        return _S.WORKER_LOST
    return _S.SUCCEEDED if reason is Reason.EXIT and exit_code == 0 else _S.FAILED
