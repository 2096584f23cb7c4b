"""Tools for agents of Pydantic AI: ``Agent(model, toolsets=[sandbox_toolset(box)])``."""

from __future__ import annotations

from typing import Any

from pydantic_ai.toolsets import FunctionToolset

from sandloom.adapters.tools import tools
from sandloom.sdk import Sandbox


def sandbox_toolset(
    box: Sandbox, *, timeout_seconds: int = 300, id: str | None = None, sequential: bool = False
) -> FunctionToolset[Any]:
    """Commands and files of one sandbox. ``timeout_seconds`` bounds every command; ``sequential`` makes calls one
    by one."""
    functions = tools(box, timeout_seconds=timeout_seconds)
    return FunctionToolset(functions, id=id, sequential=sequential)
