"""The result of a job, as a document. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sandloom.batch.jobs import Job
from sandloom.batch.plan import Final
from sandloom.batch.retries import Outcome
from sandloom.batch.ways import Names
from sandloom.errors import SandloomError
from sandloom.sdk.results import Result

#: Of an exec's record, as it is.
_OF_RECORD = (
    "exit_code", "signal", "error", "stdout", "stderr", "truncated", "duration_ms", "queued_ms", "usage",
    "started_at", "finished_at",
)  # fmt: skip
_EMPTY: dict[str, Any] = dict.fromkeys(_OF_RECORD) | {"stdout": "", "stderr": "", "truncated": False}


def of_record(
    job: Job, attempt: int, names: Names, record: Result, saved: Sequence[str], missing: str | None
) -> Outcome:
    """``saved``: outputs by their place in the sandbox. ``missing``: why one is not among them, which fails a command
    that succeeded otherwise."""
    status, reason, detail = record.status, record.reason, record.detail
    if record.ok and missing is not None:
        status, reason, detail = "FAILED", "output_missing", missing
    found = record.model_dump(mode="json")
    document = _document(job, attempt, names, status, reason, detail, {name: found[name] for name in _OF_RECORD}, saved)
    return Outcome(status, reason, record.error, document)


def of_refusal(job: Job, attempt: int, names: Names, code: str | None, detail: str) -> Outcome:
    """Of an attempt that the service refused, or that could not be made: nothing ran."""
    document = _document(job, attempt, names, "ERROR", "refused", detail, {**_EMPTY, "error": code})
    return Outcome("ERROR", "refused", code, document)


def of_skip(final: Final) -> dict[str, Any]:
    detail = f"{final.because} did not succeed"
    return _document(final.job, final.attempts, None, "SKIPPED", "dependency", detail, _EMPTY)


def refusal(job: Job, attempt: int, names: Names, error: SandloomError) -> Outcome:
    """The same for an error of the service, with the fields that it names."""
    named = "; ".join(f"{item.get('field')}: {item.get('message')}" for item in error.extra.get("errors") or ())
    return of_refusal(job, attempt, names, error.code, f"{error.detail} {named}".strip())


def _document(
    job: Job,
    attempt: int,
    names: Names | None,
    status: str,
    reason: str | None,
    detail: str | None,
    record: Mapping[str, Any],
    saved: Sequence[str] = (),
) -> dict[str, Any]:
    return {
        "id": job.id,
        "status": status,
        "reason": reason,
        "detail": detail,
        "attempts": attempt,
        **record,
        "outputs": list(saved),
        "labels": dict(job.command.get("labels") or {}),
        "sandbox_id": names.sandbox_id if names else None,
        "exec_id": names.exec_id if names else None,
    }
