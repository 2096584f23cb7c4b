"""Tools for the OpenAI Agents SDK: ``Agent(name=…, tools=sandbox_tools(box))``."""

from __future__ import annotations

from agents import FunctionTool, function_tool

from sandloom.adapters.tools import tools
from sandloom.sdk import Sandbox


def sandbox_tools(box: Sandbox, *, timeout_seconds: int = 300) -> list[FunctionTool]:
    """Commands and files of one sandbox. ``timeout_seconds`` bounds every command. A sandbox that is gone ends
    the run."""
    return [function_tool(tool, failure_error_function=None) for tool in tools(box, timeout_seconds=timeout_seconds)]
