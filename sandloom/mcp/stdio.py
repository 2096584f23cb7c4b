"""The tools over standard input and output, for agents on a desktop; they act on a deployment."""

from __future__ import annotations

import anyio
import httpx
from mcp.server.stdio import stdio_server

from sandloom.errors import Unavailable
from sandloom.mcp.rest import Ask, Reply
from sandloom.mcp.server import tool_server
from sandloom.sdk.http import address, pause_seconds, problem_of, trusted_environment, unreachable

_TIMEOUT_SECONDS = 60.0
_TRIES = 4


def run(base_url: str, token: str, tenant: str | None) -> None:
    """Serve until standard input ends."""
    anyio.run(_serve, base_url, token, tenant)


async def _serve(base_url: str, token: str, tenant: str | None) -> None:
    headers = {"Authorization": f"Bearer {token}"} | ({"X-Sandbox-Tenant": tenant} if tenant else {})
    async with httpx.AsyncClient(
        base_url=base_url.rstrip("/"), headers=headers, trust_env=trusted_environment(base_url)
    ) as http:
        server = tool_server(Deployment(http))
        async with stdio_server() as (reading, writing):
            await server.run(reading, writing, server.create_initialization_options())


class Deployment:
    """REST over a connection. A call that is safe to repeat is sent again when its answer is lost."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http

    async def __call__(self, ask: Ask) -> Reply:
        for attempt in range(1, _TRIES):
            try:
                return await self._send(ask)
            except Unavailable:
                if not ask.safe:
                    raise
                await anyio.sleep(pause_seconds(attempt))
        return await self._send(ask)

    async def _send(self, ask: Ask) -> Reply:
        timeout = httpx.Timeout(_TIMEOUT_SECONDS + ask.wait_seconds, connect=10.0)
        try:
            response = await self._http.request(
                ask.method, address(ask.path), json=ask.body, params=dict(ask.query), headers=ask.headers,
                timeout=timeout,
            )  # fmt: skip
        except httpx.TransportError as error:
            raise unreachable(error) from error
        if response.status_code >= 400:
            raise problem_of(response)
        return Reply(response.headers, response.content)
