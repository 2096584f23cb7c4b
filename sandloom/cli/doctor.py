"""``sandloom doctor``: what isolation this machine gives, found by running it.

Servers of the deployment are dialled, from a sandbox that shares the host's network, to see who answers anyone.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from sandloom.cli.invocation import Invocation, Stop
from sandloom.cli.output import json_option, print_json, print_value
from sandloom.settings import Settings, unsupported
from sandloom.settings.control_plane import control_plane

SCHEMA_VERSION = 1


@click.command()
@json_option
@click.pass_obj
def doctor(invocation: Invocation, as_json: bool) -> int:
    """Probe the isolation of this machine by real runs; exit code 0 when a worker can start, 2 when not."""
    report = examine(Settings.load(invocation.environ, dotenv=invocation.dotenv))
    if as_json:
        print_json(report)
    else:
        _print(report)
    return 0 if report["can_start"] else 2


def examine(settings: Settings) -> dict[str, Any]:
    """``schema_version, status (usable|blocked), can_start, problems, warnings, capabilities``."""
    if sys.platform != "linux":
        raise Stop("workers run on Linux only")
    from sandloom.execution.dial import DialReport, dial
    from sandloom.execution.probe import ProbeReport, probe
    from sandloom.execution.process import Spawner
    from sandloom.execution.toolchain_checks import Toolchains
    from sandloom.execution.toolchains import ToolchainRequest

    with _state_directory() as state_dir:
        spawner = Spawner()
        groups, no_groups = _groups(settings)
        try:
            request = _request(settings, state_dir)
            found: ProbeReport = probe(request, spawner, groups, no_groups)
            exposure = DialReport()
            toolchains: dict[str, Any] = {"configured": list(settings.toolchains), "available": [], "checks": {}}
            if found.plan is not None:
                checked = Toolchains(ToolchainRequest.of(settings), request, found.plan, spawner)
                exposure = dial(request, found.plan, spawner, control_plane(settings))
                toolchains = {**checked.report().to_dict(), "details": checked.report().details}
        finally:
            spawner.close()
            if groups is not None:
                groups.close()
    problems = [found.blocked] if found.plan is None else []
    problems += unsupported(settings)
    servers, server_warnings = _servers(settings, problems)
    disk = _disk_budget(settings)
    if disk["mode"] == "measured" and settings.resource_control == "required":
        problems.append(f"SANDBOX_RESOURCE_CONTROL=required: a disk budget can only be measured, since {disk['why']}")
    exposed = exposure.problems
    local = settings.environment == "local"
    problems += [] if local else exposed
    return {
        "schema_version": SCHEMA_VERSION,
        "status": "blocked" if problems else "usable",
        "can_start": not problems,
        "problems": problems,
        "warnings": [*settings.warnings, *found.warnings, *server_warnings, *(exposed if local else [])],
        "capabilities": {
            **_capabilities(settings, found, exposure),
            "disk_budget": disk,
            "servers": servers,
            "toolchains": toolchains,
        },
    }


def _capabilities(settings: Settings, found: Any, exposure: Any) -> dict[str, Any]:
    plan = found.plan
    return {
        "selected_level": None if plan is None else str(plan.level),
        "supported_levels": [str(level) for level in found.supported_levels],
        "pid_namespace": plan is not None and plan.pid_namespace,
        "cgroup_namespace": plan is not None and plan.cgroup_namespace,
        "uid_separation": plan is not None and plan.uid_separation,
        "bubblewrap": {"path": None if plan is None else plan.bwrap, "version": found.bwrap_version},
        "probe_failures": [failure.to_dict() for failure in found.probe_failures],
        "fixes": list(found.fixes),
        "feature_policy": {
            "required": list(settings.isolation_required_features),
            "optional": list(settings.isolation_optional_features),
            "skipped": list(found.skipped_features),
        },
        "network_mode": settings.network_mode,
        "control_plane": exposure.to_dict(),
        "seccomp": plan is not None and plan.seccomp_file is not None,
        "resource_control": {
            "mode": settings.resource_control,
            "budgets": bool(found.controllers),
            "controllers": sorted(found.controllers),
        },
    }


def _servers(settings: Settings, problems: list[str]) -> tuple[list[dict[str, Any]], list[str]]:
    """Broker, bus and result backend, as far as they answer; one that refuses is added to ``problems``."""
    from sandloom.broker.check import check_servers
    from sandloom.errors import BrokerRefused

    try:
        found = check_servers(settings)
    except BrokerRefused as error:
        problems.append(error.detail)
        return [], []
    return [server.to_dict() for server in found], [warning for server in found for warning in server.warnings]


def _disk_budget(settings: Settings) -> dict[str, str]:
    """``mode``: ``off``, ``measured``, or ``quota``, which a worker proves when it starts; and ``why``."""
    from sandloom.execution.project_quota import ProjectQuota
    from sandloom.execution.spec import BudgetsUnavailable

    if not settings.disk_budget:
        return {"mode": "off", "why": "no disk budget is set"}
    root = settings.workspace_root
    place = next(path for path in (root, *root.parents) if path.is_dir())
    try:
        ProjectQuota(str(place)).close()
    except (BudgetsUnavailable, OSError) as error:
        return {"mode": "measured", "why": str(error)}
    return {"mode": "quota", "why": f"the file system of {place} has project quotas"}


def _groups(settings: Settings) -> tuple[Any, str]:
    from sandloom.execution.cgroups import Groups
    from sandloom.execution.spec import BudgetsUnavailable

    if settings.resource_control == "off":
        return None, ""
    try:
        return Groups.open(f"doctor-{os.getpid()}"), ""
    except BudgetsUnavailable as error:
        return None, str(error)


def _request(settings: Settings, state_dir: Path) -> Any:
    from sandloom.execution.probe import ProbeRequest
    from sandloom.execution.spec import Level, Network

    network = Network.ISOLATED if settings.network_mode == "isolated" else Network.HOST
    level = None if settings.isolation_level == "auto" else Level(settings.isolation_level)
    return ProbeRequest(
        state_dir=state_dir,
        # The last id of the range: a worker beside this probe starts with the first.
        uid=settings.uid_end,
        gid=settings.uid_end,
        level=level,
        required=settings.required_features,
        optional=frozenset(settings.isolation_optional_features),
        network=network,
        readonly_mounts=settings.readonly_mounts,
        bwrap=None if settings.bubblewrap_path is None else str(settings.bubblewrap_path),
        controllers=settings.required_controllers,
    )


@contextmanager
def _state_directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="sandloom-doctor-", ignore_cleanup_errors=True) as name:
        path = Path(name)
        path.chmod(0o711)
        yield path


def _print(report: dict[str, Any]) -> None:
    found = report["capabilities"]
    values = {
        "status": report["status"],
        "isolation level": found["selected_level"],
        "supported levels": ", ".join(found["supported_levels"]) or "none",
        "uid per sandbox": "yes" if found["uid_separation"] else "no (the worker is not root)",
        "network": found["network_mode"],
        "seccomp": "yes" if found["seccomp"] else "no",
        "disk budget": found["disk_budget"]["mode"],
        "cgroup budgets": ", ".join(found["resource_control"]["controllers"]) or "no",
        "bubblewrap": f"{found['bubblewrap']['version'] or 'none'} {found['bubblewrap']['path'] or ''}".strip(),
        "toolchains": ", ".join(f"{name} {what}" for name, what in found["toolchains"]["checks"].items()) or "none",
    }
    print_value(values)
    for failure in found["probe_failures"]:
        click.echo(f"failed: {failure['level']}: {failure['message']}")
    for hint in found["toolchains"].get("isolation_hints", []):
        click.echo(f"toolchain {hint}")
    for title in ("problems", "warnings"):
        for line in report[title]:
            click.echo(f"{title[:-1]}: {line}")
    for fix in found["fixes"]:
        click.echo(f"fix: {fix}")


COMMANDS = (doctor,)
