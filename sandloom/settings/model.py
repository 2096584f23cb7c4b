"""The one flat, frozen ``Settings``, and where each value came from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from pydantic import PrivateAttr, SecretStr

from sandloom.settings.backends import Backends, Objects, Templates
from sandloom.settings.checks import CGROUP_BUDGETS
from sandloom.settings.general import Api, General
from sandloom.settings.isolation import Isolation, Limits
from sandloom.settings.toolchains import Egress, Toolchains
from sandloom.settings.urls import masked
from sandloom.settings.worker import Lease, Retention, Worker

#: The reaper waits this much longer than the fence and the grace together need.
FENCE_MARGIN_SECONDS = 5

GROUPS = (General, Api, Isolation, Limits, Worker, Lease, Retention, Backends, Objects, Templates, Toolchains, Egress)

Origin = Literal["default", "derived", "environment", ".env", "option", "generated", "mode"]

#: What decides how a sandbox behaves, and nothing else: the declared hash is taken over these.
_PROFILE_FIELDS = (
    "profile_id", "isolation_level", "isolation_required_features", "isolation_optional_features", "network_mode",
    "execution_backend", "readonly_mounts", "tmpfs_bytes", "shm_bytes", "cpu_seconds", "max_processes",
    "max_open_files", "max_file_size_bytes", "resource_control", "budget_memory_bytes", "budget_cpu_percent",
    "budget_pids", "budget_disk_bytes", "budget_inodes", "toolchains", "python_index_url", "npm_registry", "go_proxy",
    "go_sumdb", "cargo_registry_url", "maven_repository_url", "java_home", "rust_launcher_dir",
    "egress_allowed_hosts", "egress_denied_addresses", "egress_allowed_literals", "credential_broker",
)  # fmt: skip


class Settings(
    General, Api, Isolation, Limits, Worker, Lease, Retention, Backends, Objects, Templates, Toolchains, Egress
):
    """Every setting of one process; built by ``load``, never from ``os.environ`` by itself."""

    _origins: Mapping[str, Origin] = PrivateAttr(default_factory=lambda: MappingProxyType({}))
    _warnings: tuple[str, ...] = PrivateAttr(default=())

    @classmethod
    def load(
        cls,
        environ: Mapping[str, str],
        *,
        dotenv: Path | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Settings:
        """The settings of ``environ``, with the file ``dotenv`` as fallback and ``options`` (by field name) on top.

        Raises SettingsInvalid with every problem, by variable name and without values.
        """
        from sandloom.settings.loader import load

        return load(environ, dotenv=dotenv, options=options or {})

    @property
    def origins(self) -> Mapping[str, Origin]:
        """Where each value came from, by field name."""
        return self._origins

    @property
    def warnings(self) -> tuple[str, ...]:
        """What an operator should hear once at start."""
        return self._warnings

    def replaced(self, origin: Origin = "option", **values: Any) -> Settings:
        """These settings with other values; what was derived is derived again."""
        from sandloom.settings.loader import rebuild

        return rebuild(self, values, origin)

    def embedded(self, data_dir: Path | None = None) -> Settings:
        """For one process that is everything: in-process broker and bus, and loopback unless HOST is set."""
        values: dict[str, Any] = {"broker_url": "memory://", "bus_url": "memory://", "result_backend": None}
        if data_dir is not None:
            values["data_dir"] = data_dir
        if self.origins.get("host", "default") == "default":
            values["host"] = "127.0.0.1"
        return self.replaced("mode", **values)

    @property
    def workspace_root(self) -> Path:
        return self.shared_root or self.local_root

    @property
    def storage_mode(self) -> Literal["local", "shared"]:
        return "shared" if self.shared_root else "local"

    @property
    def templates_directory(self) -> Path:
        root = self.workspace_root
        return self.template_root or root.with_name(f"{root.name}-templates")

    @property
    def fence_after_seconds(self) -> int:
        """The node ends its commands this long after it sent its last acknowledged renewal."""
        return self.heartbeat_ttl_seconds + self.orphan_running_grace_seconds

    @property
    def reap_after_seconds(self) -> int:
        """A lease watched unrenewed for longer than this has no living command any more."""
        return self.fence_after_seconds + self.terminate_grace_seconds + FENCE_MARGIN_SECONDS

    @property
    def required_controllers(self) -> frozenset[str]:
        """The cgroup controllers without which a worker must not start."""
        if self.resource_control == "required" or "cgroup_limits" in self.isolation_required_features:
            return frozenset(CGROUP_BUDGETS.values())
        return frozenset(found for name, found in CGROUP_BUDGETS.items() if getattr(self, name) is not None)

    @property
    def disk_budget(self) -> bool:
        return self.budget_disk_bytes is not None or self.budget_inodes is not None

    @property
    def required_features(self) -> frozenset[str]:
        """What the isolation must have, also because of budgets."""
        implied = {"cgroup_limits"} if self.required_controllers else set()
        return frozenset({*self.isolation_required_features, *implied})

    def declared_hash(self) -> str:
        """16 hexadecimal digits over all that decides how a sandbox behaves; needs no probe."""
        values = {name: _plain(getattr(self, name)) for name in _PROFILE_FIELDS}
        text = json.dumps(values, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def shown(self, name: str) -> Any:
        """The value for people: secrets are masked, also those inside URLs."""
        value = getattr(self, name)
        if isinstance(value, SecretStr):
            return "********" if value.get_secret_value() else ""
        return _plain(value)

    def __repr__(self) -> str:
        given = [name for name, origin in self.origins.items() if origin not in ("default", "derived")]
        return f"Settings({', '.join(f'{name}={self.shown(name)!r}' for name in sorted(given))})"

    __str__ = __repr__


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [masked(item) for item in value]
    if isinstance(value, str | Path):
        return masked(str(value))
    return value
