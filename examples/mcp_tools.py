"""The tools over MCP, driven by the official client as an agent's host would.

    SANDBOX_BASE_URL=http://127.0.0.1:8080 SANDBOX_INTERNAL_TOKEN=… .venv/bin/python examples/mcp_tools.py [--stdio]

Needs the extra ``sandloom[mcp]``, which a checkout's ``.venv`` has. With ``--stdio`` the client starts
``sandloom mcp``; otherwise it speaks to the API.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

BASE = os.environ.get("SANDBOX_BASE_URL", "http://127.0.0.1:8080").rstrip("/")
TOKEN = os.environ.get("SANDBOX_INTERNAL_TOKEN", "")
PRIMES = "print('primes:', *[n for n in range(2, 30) if all(n % d for d in range(2, n))])\n"


@asynccontextmanager
async def connected() -> AsyncIterator[Client]:
    if "--stdio" in sys.argv:
        server = StdioServerParameters(command=sys.executable, args=["-m", "sandloom", "mcp"], env=dict(os.environ))
        async with Client(server) as client:
            yield client
        return
    headers = {"Authorization": f"Bearer {TOKEN}"}
    # Without a proxy: the service is usually near.
    async with httpx2.AsyncClient(headers=headers, trust_env=False, timeout=60) as http:
        url = f"{BASE}/api/v1/sandboxes/mcp/streamable-http"
        async with Client(streamable_http_client(url, http_client=http)) as client:
            yield client


async def call(client: Client, tool: str, **arguments: Any) -> Any:
    """The structured content; an error of a tool ends the program with its text, which begins with its code."""
    result = await client.call_tool(tool, arguments)
    return sys.exit(_text(result)) if result.is_error else result.structured_content


def _text(result: Any) -> str:
    return str(result.content[0].text)


async def main() -> None:
    async with connected() as client:
        print(len((await client.list_tools()).tools), "tools")
        box = await call(client, "sandbox_create", workspace_scope_id="examples")
        fence = {"sandbox_id": box["sandbox_id"], "generation": box["generation"]}
        await call(client, "sandbox_write_file", **fence, path="/workspace/primes.py", content=PRIMES)
        ran = await call(client, "sandbox_exec", **fence, argv=["python3", "primes.py"])
        print(ran["stdout"]["text"], end="")
        missing = await client.call_tool("sandbox_read_file", {**fence, "path": "/workspace/missing"})
        print("an error:", _text(missing).partition(":")[0])
        print((await call(client, "sandbox_release", **fence))["status"])


if __name__ == "__main__":
    asyncio.run(main())
