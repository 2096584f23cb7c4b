"""What single fields cannot say: contradictions, what a role needs, and what this release cannot enforce."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from sandloom.settings.urls import is_memory

if TYPE_CHECKING:
    from sandloom.settings.model import Settings


class Role(StrEnum):
    """What a server process is."""

    EMBEDDED = "embedded"
    API = "api"
    WORKER = "worker"
    BEAT = "beat"
    FLOWER = "flower"


#: Budgets that cgroups hold, and the controller of each.
CGROUP_BUDGETS = {"budget_memory_bytes": "memory", "budget_cpu_percent": "cpu", "budget_pids": "pids"}
EGRESS_CODE = "SANDBOX_EGRESS_POLICY_UNSUPPORTED"


def contradictions(settings: Settings) -> list[str]:
    """Values that cannot work together, one line each."""
    problems = []
    s = settings
    if s.heartbeat_ttl_seconds <= 2 * s.heartbeat_interval_seconds:
        problems.append("SANDBOX_HEARTBEAT_TTL_SECONDS must be above 2 x SANDBOX_HEARTBEAT_INTERVAL_SECONDS")
    # Otherwise sandboxes of a silent worker would be given to another one while its commands may still run.
    if s.orphan_release_grace_seconds <= s.reap_after_seconds - s.heartbeat_ttl_seconds:
        problems.append(
            "SANDBOX_ORPHAN_RELEASE_GRACE_SECONDS must be above SANDBOX_ORPHAN_RUNNING_GRACE_SECONDS"
            " + SANDBOX_TERMINATE_GRACE_SECONDS + 5"
        )
    if s.uid_end < s.uid_start:
        problems.append("SANDBOX_UID_END must not be below SANDBOX_UID_START")
    overlap = set(s.isolation_required_features) & set(s.isolation_optional_features)
    if overlap:
        problems.append("SANDBOX_ISOLATION_REQUIRED_FEATURES and SANDBOX_ISOLATION_OPTIONAL_FEATURES share a name")
    problems += _budget_problems(s)
    problems += _path_problems(s)
    if s.object_store_backend == "s3" and not s.blobstore_bucket:
        problems.append("SANDBOX_BLOBSTORE_BUCKET is required when SANDBOX_OBJECT_STORE_BACKEND is s3")
    problems += [
        f"SANDBOX_{name.upper()} may hold printable ASCII without spaces only"
        for name in ("internal_token", "internal_token_previous")
        if not all("!" <= char <= "~" for char in getattr(s, name).get_secret_value())
    ]
    return problems


def _budget_problems(settings: Settings) -> list[str]:
    if settings.resource_control != "off":
        return []
    wanted = [f"SANDBOX_{name.upper()}" for name in CGROUP_BUDGETS if getattr(settings, name) is not None]
    if "cgroup_limits" in settings.isolation_required_features:
        wanted.append("SANDBOX_ISOLATION_REQUIRED_FEATURES with cgroup_limits")
    return [f"{name} cannot be had with SANDBOX_RESOURCE_CONTROL=off" for name in wanted]


def _path_problems(settings: Settings) -> list[str]:
    names = (
        "data_dir", "local_root", "shared_root", "template_root", "bubblewrap_path", "java_home", "rust_launcher_dir",
    )  # fmt: skip
    return [
        f"SANDBOX_{name.upper()} must be an absolute path"
        for name in names
        if (path := getattr(settings, name)) is not None and not path.is_absolute()
    ]


def missing_for(settings: Settings, role: Role) -> list[str]:
    """What a process of this role needs and does not have, one line each."""
    problems = []
    if settings.environment == "prod":
        problems += [
            f"SANDBOX_{name.upper()} is required when SANDBOX_ENVIRONMENT is prod"
            for name in ("internal_token", "secret_key")
            if not getattr(settings, name).get_secret_value()
        ]
    if role is not Role.EMBEDDED and is_memory(settings.broker_url):
        problems.append("SANDBOX_BROKER_URL must name a broker that other processes reach; 'sandloom up' needs none")
    if role in (Role.API, Role.WORKER) and is_memory(settings.bus_url):
        problems.append("SANDBOX_BUS_URL must be a redis:// URL; 'sandloom up' needs none")
    return problems


def unsupported(settings: Settings) -> list[str]:
    """What was asked for and cannot be enforced by this release, one line each; a server refuses to start on any.

    A boundary or budget is never weakened silently.
    """
    s = settings
    problems = []
    if s.network_mode == "allowlist":
        problems.append(f"{EGRESS_CODE}: SANDBOX_NETWORK_MODE=allowlist cannot be enforced by this release")
    problems += [
        f"{EGRESS_CODE}: SANDBOX_{name.upper()} cannot be enforced by this release"
        for name in ("egress_allowed_hosts", "egress_denied_addresses", "egress_allowed_literals")
        if getattr(s, name)
    ]
    only = {
        "execution_backend": "bubblewrap",
        "credential_broker": "disabled",
        "residency": "off",
    }
    problems += [
        f"SANDBOX_{name.upper()} other than {value} is not available in this release"
        for name, value in only.items()
        if getattr(s, name) != value
    ]
    if s.origins.get("bubblewrap_min_version", "default") != "default":
        problems.append("SANDBOX_BUBBLEWRAP_MIN_VERSION is not checked by this release, which asks for options instead")
    if s.telemetry_sink:
        problems.append("SANDBOX_TELEMETRY_SINK is not available in this release")
    return problems
