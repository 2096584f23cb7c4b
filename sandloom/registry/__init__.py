"""How busy workers are, as a hint: it decides between workers that are equally good, and nothing else.

Who lives is decided by the leases in the database, who has room by its reservations; a registry may lose everything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandloom.contracts.ports import Registry
from sandloom.registry.memory import MemoryRegistry
from sandloom.settings.plugins import plugin

if TYPE_CHECKING:
    from sandloom.settings import Settings

__all__ = ["MemoryRegistry", "Registry", "open_registry"]

ENTRY_POINTS = "agent_sandbox.registries"


def open_registry(settings: Settings) -> Registry:
    """``memory``, which knows the workers of its own process, ``redis``, or an entry point. Nothing is contacted yet.

    Raises SettingsInvalid.
    """
    if settings.registry_backend == "memory":
        return MemoryRegistry()
    if settings.registry_backend == "redis":
        from sandloom.registry.redis import RedisRegistry

        return RedisRegistry(settings.redis_url, settings.registry_namespace)
    registry: Registry = plugin(ENTRY_POINTS, settings.registry_backend, "SANDBOX_REGISTRY_BACKEND")(settings)
    return registry
