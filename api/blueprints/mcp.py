"""The Model Context Protocol over HTTP, without sessions and streams."""

from __future__ import annotations

from typing import Any, Literal

from flask import Response, current_app
from pydantic import Field

from api import raises
from api.allowed_hosts import check_host
from api.answers import bytes_answer, no_answer
from api.inner_calls import InnerCalls
from api.operations import Call, Group
from api.queries import NoQuery
from sandloom.contracts.rest import Body
from sandloom.errors import MalformedRequest
from sandloom.tenants.records import KeyScope

group = Group("mcp", "MCP")
_JSON = "application/json"
#: A file of 6 MB as base64. Models write less, and larger ones have routes of their own.
MAX_BODY_BYTES = 8 << 20


class McpMessage(Body):
    """One request or notification of JSON-RPC 2.0."""

    jsonrpc: Literal["2.0"]
    method: str
    id: int | str | None = None
    params: dict[str, Any] | None = Field(default=None, repr=False)


@group.operation(
    "POST",
    "/sandboxes/mcp/streamable-http",
    {200: _JSON, 202: "", 400: _JSON, 404: _JSON},
    # Each call inside is checked for the scope of its own route.
    scope=KeyScope.READ,
    raises=raises.OVER_MCP,
    body_limit=lambda _settings: MAX_BODY_BYTES,
    request_headers={"MCP-Protocol-Version": "The version of the protocol.", "Accept": "`application/json`."},
)
def exchange_mcp(call: Call, query: NoQuery, body: McpMessage) -> Response:
    """Serve one message of the Model Context Protocol; see docs/mcp.md for the tools."""
    # The SDK is large: what never speaks MCP does not load it.
    from api.mcp_exchange import exchange

    headers = call.request.headers
    check_host(call.services.settings.mcp_allowed_hosts, headers.get("Host"), headers.get("Origin"))
    meant = {name: value for name, value in headers.items() if name.lower().startswith(("mcp-", "accept"))}
    rest = InnerCalls(current_app._get_current_object(), call.request)  # type: ignore[attr-defined]
    came = exchange(rest, body.model_dump(exclude_unset=True), meant)
    if came.status == 406:
        raise MalformedRequest("The endpoint answers in application/json; say in Accept that it is taken.")
    if not came.content:
        return no_answer(came.status)
    return bytes_answer(came.content, _JSON, came.status)
