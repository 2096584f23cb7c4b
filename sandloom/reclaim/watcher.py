"""Watches leases by this process's own CLOCK_BOOTTIME, so that no step of the database's clock and no outage of this
process makes a living worker look dead."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sandloom.clock import boottime_seconds
from sandloom.fleet.service import Lease


@dataclass(slots=True)
class _Seen:
    lease: Lease
    since_seconds: float
    until_seconds: float


class LeaseWatcher:
    """``observe`` every few seconds; ``lapsed`` names the leases seen unrenewed, without a gap, for long enough."""

    def __init__(
        self,
        leases: Callable[[], Sequence[Lease]],
        *,
        lost_after_seconds: float,
        max_gap_seconds: float,
        clock: Callable[[], float] = boottime_seconds,
    ) -> None:
        self._leases = leases
        self._lost_after_seconds = lost_after_seconds
        self._max_gap_seconds = max_gap_seconds
        self._clock = clock
        self._seen: dict[str, _Seen] = {}
        self._last_seconds: float | None = None
        self._lock = threading.Lock()

    def observe(self) -> None:
        """Look once. Raises what the database raises; a look that failed counts as not having looked."""
        before = self._clock()
        leases = self._leases()
        after = self._clock()
        with self._lock:
            if self._last_seconds is None or before - self._last_seconds > self._max_gap_seconds:
                self._seen.clear()
            self._last_seconds = after
            seen: dict[str, _Seen] = {}
            for lease in leases:
                known = self._seen.get(lease.worker_id)
                if known is not None and known.lease == lease:
                    # It was unrenewed when this look began; since when, is known from the end of the first one.
                    known.until_seconds = before
                    seen[lease.worker_id] = known
                else:
                    seen[lease.worker_id] = _Seen(lease, after, after)
            self._seen = seen

    def lapsed(self) -> list[Lease]:
        with self._lock:
            return [
                seen.lease
                for seen in self._seen.values()
                if seen.until_seconds - seen.since_seconds > self._lost_after_seconds
            ]
