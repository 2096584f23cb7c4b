"""The official client of the Model Context Protocol, over HTTP and over stdio."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult, TextContent

from sandloom.mcp.server import PROBLEM

PATH = "/api/v1/sandboxes/mcp/streamable-http"
#: The protocol without a handshake (2026-07-28), and the one with it that clients have spoken before.
MODES = ("auto", "legacy")
#: A guard against hangs only.
_PATIENCE_SECONDS = 240
Drive = Callable[[Client], Awaitable[Any]]


def over_http(base_url: str, headers: Mapping[str, str], mode: str, drive: Drive) -> Any:
    """What ``drive`` returns for a client of the API."""
    return asyncio.run(_driven(_http(base_url, headers, mode), drive))


def over_stdio(environ: Mapping[str, str], mode: str, drive: Drive, *, cwd: str | None = None) -> Any:
    """What ``drive`` returns for a client of ``sandloom mcp``."""
    server = StdioServerParameters(command=sys.executable, args=["-m", "sandloom", "mcp"], env=dict(environ), cwd=cwd)
    return asyncio.run(_driven(Client(server, mode=mode, read_timeout_seconds=_PATIENCE_SECONDS), drive))


@asynccontextmanager
async def _http(base_url: str, headers: Mapping[str, str], mode: str) -> AsyncIterator[Client]:
    async with httpx2.AsyncClient(headers=dict(headers), trust_env=False, timeout=_PATIENCE_SECONDS) as http:
        transport = streamable_http_client(base_url + PATH, http_client=http)
        async with Client(transport, mode=mode, read_timeout_seconds=_PATIENCE_SECONDS) as client:
            yield client


async def _driven(opened: Any, drive: Drive) -> Any:
    async with opened as client:
        return await drive(client)


def text_of(result: CallToolResult) -> str:
    """Its only content."""
    (content,) = result.content
    assert isinstance(content, TextContent)
    return content.text


async def called(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """The structured content of a call that succeeds; the client checks it against the tool's schema."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, text_of(result)
    structured = result.structured_content
    assert isinstance(structured, dict)
    return structured


async def refused(client: Client, tool: str, **arguments: Any) -> str:
    """The code of a call that fails, which begins its text and stands in its problem."""
    result = await client.call_tool(tool, arguments)
    assert result.is_error, text_of(result)
    assert result.structured_content is None
    problem = (result.meta or {})[PROBLEM]
    code = str(problem["code"])
    assert text_of(result).startswith(f"{code}: ")
    return code
