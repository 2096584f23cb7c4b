"""Straight to the workers over Celery, without REST in between.

Names are resolved on first use: the names of tasks and their arguments can be had without loading Celery.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sandloom.direct.fleet import Fleet as Fleet
    from sandloom.direct.routing import task_router as task_router
    from sandloom.direct.sandbox import FleetSandbox as FleetSandbox

_PUBLIC = {
    "Fleet": "sandloom.direct.fleet",
    "FleetSandbox": "sandloom.direct.sandbox",
    "task_router": "sandloom.direct.routing",
}

__all__ = ["Fleet", "FleetSandbox", "task_router"]


def __getattr__(name: str) -> Any:
    module = _PUBLIC.get(name)
    if module is None:
        raise AttributeError(f"module 'sandloom.direct' has no attribute {name!r}")
    return getattr(importlib.import_module(module), name)
