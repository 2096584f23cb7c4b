"""Whether commands reach the control plane without a password: a start that would allow it is refused."""

from __future__ import annotations

from sandloom.errors import IsolationBlocked
from sandloom.execution.dial import DialReport, dial
from sandloom.settings import Settings
from sandloom.settings.control_plane import control_plane
from sandloom.telemetry import get_logger
from workers.ground import Ground, engine_directory, probe_request

log = get_logger("sandloom.workers.exposure")


def examine(settings: Settings, ground: Ground, channel: str) -> DialReport:
    """Dial everything from a sandbox. Raises IsolationBlocked where one is open, unless the environment is local."""
    request = probe_request(settings, engine_directory(settings, ground.root, ground.worker_id), ground.uid_range[1])
    report = dial(request, ground.plan, ground.spawner, control_plane(settings, channel))
    if report.problems and settings.environment != "local":
        raise IsolationBlocked(" ".join(f"{problem}." for problem in report.problems))
    for problem in report.problems:
        log.warning(
            "commands of every sandbox reach a server that asks for no password; only a local environment starts so",
            network_mode=settings.network_mode,
            isolation_level=ground.plan.level.value,
            problem=problem,
        )
    return report
