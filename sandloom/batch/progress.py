"""How far a batch is, and when it will be through. Pure: the caller brings the time."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from sandloom.batch.plan import FINAL, Plan, State

WINDOW_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Progress:
    """``rate``: jobs that ended per second lately; ``eta_seconds`` is None while there is none to go by."""

    total: int
    succeeded: int
    failed: int
    skipped: int
    running: int
    waiting: int
    rate: float
    eta_seconds: float | None

    @property
    def through(self) -> int:
        return self.succeeded + self.failed + self.skipped

    def __str__(self) -> str:
        parts = [f"{self.through}/{self.total}", f"{self.succeeded} done", f"{self.failed} failed"]
        parts += [f"{self.skipped} skipped"] if self.skipped else []
        parts += [f"{self.running} running", f"{self.rate:.1f} jobs/s"]
        return ", ".join([*parts, f"ETA {clock(self.eta_seconds)}"])


class Meter:
    """Ends of jobs within the last ``WINDOW_SECONDS``."""

    def __init__(self, now_seconds: float) -> None:
        self._began = now_seconds
        self._ends: deque[float] = deque()

    def ended(self, now_seconds: float) -> None:
        self._ends.append(now_seconds)

    def progress(self, plan: Plan, now_seconds: float) -> Progress:
        since = max(self._began, now_seconds - WINDOW_SECONDS)
        while self._ends and self._ends[0] < since:
            self._ends.popleft()
        rate = len(self._ends) / max(now_seconds - since, 0.001)
        counts = plan.counts
        left = plan.total - sum(counts[state] for state in FINAL)
        return Progress(
            total=plan.total,
            succeeded=counts[State.SUCCEEDED],
            failed=counts[State.FAILED],
            skipped=counts[State.SKIPPED],
            running=counts[State.RUNNING],
            waiting=counts[State.HELD] + counts[State.READY],
            rate=rate,
            eta_seconds=left / rate if rate > 0 else (0.0 if left == 0 else None),
        )


def clock(seconds: float | None) -> str:
    """``H:MM:SS``, ``M:SS``, or a dash."""
    if seconds is None:
        return "-"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
