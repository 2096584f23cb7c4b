"""The bus between processes: heads of event streams, and replies of workers.

A bus may lose messages. What it carries is only ever a reason to look: heads send their readers to the database, and
replies count only when they are signed.
"""

from __future__ import annotations

from sandloom.errors import SettingsInvalid
from sandloom.streams.memory import MemoryBus
from sandloom.streams.redis import RedisBus

__all__ = ["MemoryBus", "RedisBus", "open_bus"]


def open_bus(url: str, namespace: str) -> MemoryBus | RedisBus:
    """The bus at ``url``: ``memory://`` for one process, ``redis://``, ``rediss://`` or ``unix://`` for a fleet.

    Nothing is contacted yet. ``SettingsInvalid`` for another scheme; the message never shows the URL.
    """
    scheme = url.partition("://")[0]
    if scheme in ("memory", "sandloom-memory"):
        return MemoryBus()
    if scheme in ("redis", "rediss", "unix"):
        return RedisBus(url, namespace)
    raise SettingsInvalid("SANDBOX_BUS_URL: the bus is memory:// or redis://")
