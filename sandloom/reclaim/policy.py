"""When something may be taken back. Pure."""

from __future__ import annotations

from dataclasses import dataclass

#: Beyond the arithmetic: clocks that drift, a process that is descheduled, a signal that needs a moment.
LEASE_MARGIN_SECONDS = 5.0
RING_AGAIN_CAP_SECONDS = 300
#: How often a release that stays stalled is asked for again at last.
RELEASE_AGAIN_CAP_SECONDS = 3600


@dataclass(frozen=True, slots=True)
class ReclaimPolicy:
    """The periods and bounds of maintenance."""

    heartbeat_interval_seconds: float = 10
    heartbeat_ttl_seconds: float = 30
    orphan_running_grace_seconds: float = 60
    orphan_release_grace_seconds: float = 300
    terminate_grace_seconds: float = 5
    idle_ttl_seconds: float = 1800
    max_queued_seconds: float = 3600
    #: The service has a sandbox for itself, for a template or a copy, at most so long.
    longest_hold_seconds: float = 7200
    idle_action: str = "release"
    suspended_retention_seconds: float = 2_592_000
    stalled_release_seconds: float = 30
    stalled_suspend_seconds: float = 600
    maintenance_interval_seconds: float = 60
    history_retention_days: float = 15
    usage_retention_days: int = 400
    batch_size: int = 100

    @property
    def fence_after_seconds(self) -> float:
        """A worker's spawner ends every command this long after the sending of its last acknowledged renewal."""
        return self.heartbeat_ttl_seconds + self.orphan_running_grace_seconds

    @property
    def history_seconds(self) -> float:
        """How long commands, events, audit, released sandboxes and lost workers are kept."""
        return self.history_retention_days * 86_400

    @property
    def lost_after_seconds(self) -> float:
        """A lease that a watcher saw unrenewed for this long is lost: the commands of its worker are dead by then."""
        return self.fence_after_seconds + self.terminate_grace_seconds + LEASE_MARGIN_SECONDS


def ring_again_delay_seconds(rings: int) -> int:
    """Seconds until a doorbell that was sent ``rings`` times again is sent once more: 5, 10, 20 … 300."""
    return int(min(RING_AGAIN_CAP_SECONDS, 5 * 2 ** min(rings, 10)))


def release_again_ages_seconds(stalled_seconds: float, window_seconds: float) -> list[tuple[float, float]]:
    """The ages, as ``(from, before)``, in which a stalled release is asked for again: from 1, 2, 4 … times
    ``stalled_seconds`` on, each for ``window_seconds``, in which maintenance comes by at least once; below the cap."""
    ages = []
    begin = stalled_seconds
    while begin < RELEASE_AGAIN_CAP_SECONDS:
        ages.append((begin, begin + window_seconds))
        begin *= 2
    return ages
