"""Clocks, by what they may be used for."""

from __future__ import annotations

import time
from datetime import UTC, datetime

MICROSECONDS = 1_000_000


def boottime_seconds() -> float:
    """CLOCK_BOOTTIME: runs on during suspend and ignores steps of the wall clock; for leases and fences on one host."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def monotonic_seconds() -> float:
    """CLOCK_MONOTONIC: for waits inside a process."""
    return time.monotonic()


def wall_seconds() -> float:
    """Seconds since the epoch by this host's clock: for deadlines that cross hosts and for log lines only."""
    return time.time()


def rfc3339(microseconds: int | None) -> str | None:
    """A database time (microseconds since the epoch, UTC) as RFC 3339 with an offset; None stays None."""
    if microseconds is None:
        return None
    return datetime.fromtimestamp(microseconds / MICROSECONDS, UTC).isoformat(timespec="milliseconds")
