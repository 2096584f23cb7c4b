"""One MCP message over HTTP: the SDK's own transport, run to its end in the thread of the request.

The SDK is asynchronous and keeps sessions and streams. Without sessions, and with JSON as the only answer, an exchange
is a function of its request: it gets an event loop of its own, which lives as long as it does. What its tools do blocks
that loop and nothing else, so a call needs one thread, as it does over REST, and no loop is shared between clients.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.types import Message, Scope

from sandloom.errors import MalformedRequest
from sandloom.mcp.rest import Rest
from sandloom.mcp.server import tool_server


@dataclass
class Exchange:
    """What came back; ``content`` is empty or JSON."""

    status: int = 500
    headers: dict[str, str] = field(default_factory=dict)
    content: bytes = b""


def exchange(rest: Rest, message: Mapping[str, Any], headers: Mapping[str, str]) -> Exchange:
    """Give ``message`` to the SDK's server. ``headers`` are those of HTTP that the protocol has a meaning for.

    Raises MalformedRequest.
    """
    try:
        body = json.dumps(message, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise MalformedRequest("The message holds a lone surrogate.") from None
    with asyncio.Runner() as runner:
        return runner.run(_exchange(rest, body, _scope(headers, body)))


async def _exchange(rest: Rest, body: bytes, scope: Scope) -> Exchange:
    came, unread = Exchange(), [body]

    async def receive() -> Message:
        if unread:
            return {"type": "http.request", "body": unread.pop(), "more_body": False}
        # Whoever waits for more waits for the client to leave, which the routes notice by themselves.
        await asyncio.Event().wait()
        raise AssertionError("unreachable")

    async def send(event: Message) -> None:
        if event["type"] == "http.response.start":
            came.status = event["status"]
            came.headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in event["headers"]}
        else:
            came.content += event.get("body", b"")

    # The route checks host, origin and size. A manager serves for one run only.
    manager = StreamableHTTPSessionManager(
        tool_server(rest), json_response=True, stateless=True, max_request_body_size=len(body)
    )
    async with manager.run():
        await manager.handle_request(scope, receive, send)
    return came


def _scope(headers: Mapping[str, str], body: bytes) -> Scope:
    sent = {**headers, "content-type": "application/json", "content-length": str(len(body))}
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": "/",
        "raw_path": b"/",
        "root_path": "",
        "query_string": b"",
        "headers": [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in sent.items()],
        "client": None,
        "server": None,
    }
