"""Which failures of a job are tried again. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from sandloom.errors import REGISTRY, Category

MAX_RETRIES: Final = 100
#: Reasons of an exec's record, and two of a batch: the service refused the job, an output is not there.
RETRYABLE: Final = frozenset(
    {
        "exit", "signal", "timeout", "queue_timeout", "oom", "pids", "cpu_limit", "file_size", "disk", "output_cap",
        "cancelled", "not_started", "worker_lost", "refused", "output_missing",
    }
)  # fmt: skip
#: Those after which nothing of the command has run.
NEVER_STARTED: Final = frozenset({"queue_timeout", "not_started"})


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an attempt ended: ``status`` is an exec's, or ERROR where there is none; ``document`` is its result."""

    status: str
    reason: str | None = None
    error: str | None = None
    document: Mapping[str, Any] | None = None

    @property
    def ok(self) -> bool:
        return self.status == "SUCCEEDED"


@dataclass(frozen=True, slots=True)
class Retries:
    """For jobs that say nothing of it. ``most``: attempts after the first."""

    most: int = 2
    reasons: frozenset[str] = NEVER_STARTED

    def again(self, outcome: Outcome, attempt: int, most: int | None, reasons: frozenset[str] | None) -> bool:
        """Whether the job gets another attempt after ``attempt`` (from 1)."""
        if outcome.ok or attempt > (self.most if most is None else most):
            return False
        kind = REGISTRY.get(outcome.error or "")
        if outcome.reason in NEVER_STARTED and kind is not None and kind.category is Category.CHANGE:
            return False  # a program that is not there will not be there the next time
        return outcome.reason in (self.reasons if reasons is None else reasons)
