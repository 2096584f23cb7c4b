"""Sandloom: many persistent sandboxes for agents, behind one API.

Public names are resolved on first use, so that importing the execution code never loads the HTTP client.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from sandloom.direct import Fleet as Fleet
    from sandloom.errors import SandloomError as SandloomError
    from sandloom.sdk.aio.client import AsyncClient as AsyncClient
    from sandloom.sdk.aio.sandbox import AsyncSandbox as AsyncSandbox
    from sandloom.sdk.client import Client as Client
    from sandloom.sdk.sandbox import Sandbox as Sandbox

_PUBLIC = {
    "AsyncClient": "sandloom.sdk.aio.client",
    "AsyncSandbox": "sandloom.sdk.aio.sandbox",
    "Client": "sandloom.sdk.client",
    "Fleet": "sandloom.direct",
    "Sandbox": "sandloom.sdk.sandbox",
    "SandloomError": "sandloom.errors",
}

__all__ = ["AsyncClient", "AsyncSandbox", "Client", "Fleet", "Sandbox", "SandloomError", "__version__"]


def __getattr__(name: str) -> Any:
    module = _PUBLIC.get(name)
    if module is None:
        raise AttributeError(f"module 'sandloom' has no attribute {name!r}")
    return getattr(importlib.import_module(module), name)


def __dir__() -> list[str]:
    return sorted(__all__)
