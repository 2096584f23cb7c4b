"""The tools as a server of the official SDK."""

from __future__ import annotations

import functools
import logging
from typing import Any

from mcp.server import Server, ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    ToolAnnotations,
)
from mcp_types import Tool as ListedTool

from sandloom import __version__
from sandloom.contracts.refusals import validated
from sandloom.errors import SandloomError
from sandloom.mcp.rest import Rest
from sandloom.mcp.texts import error_text
from sandloom.mcp.tools import TOOLS, Tool

#: Where an error's problem body (RFC 9457) stands in the result's ``_meta``.
PROBLEM = "sandloom/problem"
_INSTRUCTIONS = (
    "Persistent Linux sandboxes. Call sandbox_create once and keep sandbox_id and generation; then run commands with "
    "sandbox_exec and move files with sandbox_write_file and sandbox_read_file, as often as needed: files below "
    "/workspace stay between calls. Call sandbox_release when the work is done. An error begins with its code: "
    "STALE_SANDBOX_ROUTE means that the sandbox got a new generation, which sandbox_resolve returns."
)
_log = logging.getLogger("sandloom.mcp")
# It tells of every request that a manager starts and stops, and repeats what clients sent.
logging.getLogger("mcp").setLevel(logging.ERROR)


def tool_server(rest: Rest) -> Server[Any]:
    """A server whose tools ask ``rest``; cheap, and used by one event loop at a time."""

    async def call_tool(context: ServerRequestContext[Any], params: CallToolRequestParams) -> CallToolResult:
        tool = TOOLS.get(params.name)
        if tool is None:
            raise MCPError(INVALID_PARAMS, "There is no such tool; tools/list lists them.")
        return await _call(rest, tool, params.arguments or {})

    return Server(
        "sandloom",
        title="Sandloom",
        version=__version__,
        instructions=_INSTRUCTIONS,
        on_list_tools=_list_tools,
        on_call_tool=call_tool,
        get_tool_input_schema=lambda name: _listed(name).input_schema if name in TOOLS else None,
    )


async def _list_tools(context: ServerRequestContext[Any], params: PaginatedRequestParams | None) -> ListToolsResult:
    return ListToolsResult(tools=[_listed(name) for name in TOOLS])


async def _call(rest: Rest, tool: Tool, arguments: dict[str, Any]) -> CallToolResult:
    try:
        result = await tool.run(rest, validated(tool.arguments, arguments))
    except SandloomError as error:
        return _failed(error)
    except Exception:
        # Whatever it says stays in the log.
        _log.exception("a tool failed", extra={"tool": tool.name})
        return _failed(SandloomError())
    text = TextContent(text=tool.text(result))
    return CallToolResult(content=[text], structured_content=result.model_dump(mode="json"))


def _failed(error: SandloomError) -> CallToolResult:
    return CallToolResult(
        content=[TextContent(text=error_text(error))], is_error=True, _meta={PROBLEM: error.to_problem()}
    )


@functools.cache
def _listed(name: str) -> ListedTool:
    tool = TOOLS[name]
    return ListedTool(
        name=name,
        title=name.removeprefix("sandbox_").replace("_", " ").capitalize(),
        description=tool.description,
        input_schema=tool.arguments.model_json_schema(),
        output_schema=tool.result.model_json_schema(mode="serialization"),
        annotations=ToolAnnotations(
            read_only_hint=tool.reads,
            destructive_hint=tool.destroys,
            idempotent_hint=tool.repeats or tool.reads,
            open_world_hint=name == "sandbox_exec",
        ),
    )
