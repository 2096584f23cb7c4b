"""MCP over HTTP: authorization, tenants, names and errors as they are over REST, on both servers."""

from __future__ import annotations

import itertools
import json
from typing import Any

import httpx
import pytest
from mcp import Client

from api.blueprints.mcp import MAX_BODY_BYTES
from sandloom.mcp.tools import TOOLS
from tests.integration.api.hostile import VALUES, Sender
from tests.integration.api.servers import TOKEN, Api
from tests.services.mcp import MODES, PATH, called, over_http, refused, text_of

each_mode = pytest.mark.parametrize("mode", MODES)
JSON = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
MODERN = {
    "_meta": {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }
}


def headers(api: Api, **more: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {TOKEN}", "X-Sandbox-Tenant": api.tenant_id, **more}


def message(method: str, params: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params or {}, **more}


@each_mode
def test_a_client_lists_the_tools_and_runs_a_command(any_server: Api, mode: str) -> None:
    generation = any_server.ready_sandbox()
    any_server.owner.run_next("box", generation, [("stdout", b"x" * 50), ("stderr", b"\xff\n")])
    fence = {"sandbox_id": "box", "generation": generation}

    async def drive(client: Client) -> None:
        listed = {tool.name for tool in (await client.list_tools()).tools}
        assert listed == set(TOOLS)
        ran = await client.call_tool("sandbox_exec", {**fence, "argv": ["true"], "exec_id": "run-1"})
        assert "SUCCEEDED: exec_id run-1, exit code 0" in text_of(ran)
        rest = await called(
            client, "sandbox_exec_status", sandbox_id="box", exec_id="run-1", stdout_offset=-5, max_output_chars=4
        )
        assert rest["stdout"] == {"text": "xxxx", "offset": 45, "total_chars": 50, "next_offset": 49}
        assert rest["stderr"]["text"] == "\ufffd\n"
        # The same call again is the same command.
        again = await called(client, "sandbox_exec", **fence, argv=["true"], exec_id="run-1")
        assert again["stdout"]["total_chars"] == 50
        assert await refused(client, "sandbox_exec", **fence, argv=["false"], exec_id="run-1") == (
            "SANDBOX_EXEC_ID_CONFLICT"
        )

    over_http(any_server.url, headers(any_server), mode, drive)


@each_mode
def test_a_command_that_takes_longer_goes_on(any_server: Api, mode: str) -> None:
    generation = any_server.ready_sandbox()

    async def drive(client: Client) -> None:
        fence = {"sandbox_id": "box", "generation": generation}
        started = await called(client, "sandbox_exec", **fence, command="true", exec_id="run-1", wait_seconds=0)
        assert (started["status"], started["finished"]) == ("QUEUED", False)
        record = any_server.owner.claim("box", "run-1", generation)
        followed = await called(client, "sandbox_exec_status", sandbox_id="box", exec_id="run-1", wait_seconds=1)
        assert followed["status"] == "RUNNING"
        assert (await called(client, "sandbox_cancel", sandbox_id="box", exec_id="run-1"))["cancelled"] is True
        any_server.owner.finish(record)

    over_http(any_server.url, headers(any_server), mode, drive)


@each_mode
def test_what_belongs_to_another_tenant_is_not_there(any_server: Api, mode: str) -> None:
    any_server.ready_sandbox()

    async def drive(client: Client) -> str:
        return await refused(client, "sandbox_status", sandbox_id="box")

    own = any_server.for_tenant(f"{any_server.tenant_id}-other")
    assert over_http(own.url, headers(own), mode, drive) == "SANDBOX_NOT_FOUND"


def test_errors_name_fields_and_never_values(any_server: Api) -> None:
    generation = any_server.ready_sandbox()

    async def drive(client: Client) -> None:
        fence = {"sandbox_id": "box", "generation": generation}
        for arguments in (
            {"argv": ["true"], "env": {"A": {"hunter2": "hunter2"}}},  # refused by the tool's model
            {"argv": ["true"], "env": {"LD_PRELOAD": "hunter2"}},  # by the service
            {"argv": ["true"], "stdin": "hunter2\x00"},
            {"comand": "hunter2"},
        ):
            result = await client.call_tool("sandbox_exec", fence | arguments)
            assert result.is_error
            assert "hunter2" not in result.model_dump_json().replace("env.A.hunter2", "")
        assert "did you mean command?" in text_of(result)
        assert await refused(client, "sandbox_exec", **fence | {"generation": 7}, command="true") == (
            "STALE_SANDBOX_ROUTE"
        )

    over_http(any_server.url, headers(any_server), "auto", drive)


def test_without_a_token_there_is_nothing(any_server: Api) -> None:
    for token in (None, "wrong", TOKEN + "x"):
        with any_server.client(token) as client:
            reply = client.post(PATH, json=message("tools/list"))
            assert (reply.status_code, reply.json()["code"]) == (401, "UNAUTHORIZED")
            assert reply.headers["WWW-Authenticate"].startswith("Bearer")


def test_a_name_or_an_origin_that_is_not_listed_is_refused(any_server: Api) -> None:
    with any_server.client(headers=JSON) as client:

        def post(**more: str) -> tuple[int, str]:
            reply = client.post(PATH, json=message("tools/list"), headers=more)
            return reply.status_code, reply.json().get("code", "")

        assert post(Host="rebound.example") == (421, "SANDBOX_MCP_HOST_NOT_ALLOWED")
        assert post(Origin="https://rebound.example") == (403, "SANDBOX_MCP_ORIGIN_NOT_ALLOWED")
        assert post(Origin="http://localhost:3000", Host="test") == (200, "")


def test_there_are_no_streams_and_no_sessions(any_server: Api) -> None:
    with any_server.client(headers=JSON) as client:
        for method in ("GET", "DELETE"):
            assert client.request(method, PATH, headers={"Accept": "text/event-stream"}).status_code == 405
        first = client.post(PATH, json=message("tools/list"))
        assert "mcp-session-id" not in first.headers
        assert first.headers["Content-Type"] == "application/json"
        # A session of somebody's imagination is no session.
        assert client.post(PATH, json=message("tools/list"), headers={"Mcp-Session-Id": "x"}).status_code == 200
        notification = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        assert client.post(PATH, json=notification).status_code == 202


def test_a_body_is_bounded(any_server: Api) -> None:
    content = "x" * MAX_BODY_BYTES
    body = json.dumps(message("tools/call", {"name": "sandbox_write_file", "arguments": {"content": content}}))
    with any_server.client(headers=JSON) as client:
        assert client.post(PATH, content=body).status_code == 413


def test_protocol_errors_have_the_statuses_of_the_protocol(any_server: Api) -> None:
    modern = {"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/nothing"}
    with any_server.client(headers=JSON) as client:

        def post(body: dict[str, Any], **more: str) -> tuple[int, int]:
            reply = client.post(PATH, json=body, headers={name.replace("_", "-"): more[name] for name in more})
            return reply.status_code, reply.json().get("error", {}).get("code", 0)

        assert post(message("tools/nothing", MODERN), **modern) == (404, -32601)
        assert post(message("tools/nothing")) == (200, -32601)
        assert post(message("tools/call", {"name": "sandbox_nothing"})) == (200, -32602)
        assert post(message("tools/list", MODERN), Mcp_Protocol_Version="1999-01-01")[0] == 400
        unread = client.post(PATH, json=message("tools/list"), headers={"Accept": "text/html"})
        assert (unread.status_code, unread.json()["code"]) == (400, "MALFORMED_REQUEST")


def test_no_argument_of_any_tool_breaks_the_service(any_server: Api) -> None:
    any_server.ready_sandbox()
    sender = Sender(any_server.host_port, any_server.tenant_id)
    # Of another generation, so that none of the calls needs the worker, or makes a sandbox.
    valid = {
        "sandbox_id": "box", "generation": 7, "exec_id": "run-1", "path": "/workspace/a", "content": "x",
        "command": "true", "workspace_scope_id": "another", "wait_seconds": 0,
    }  # fmt: skip
    values = itertools.cycle(value for value in VALUES if value != 10**400)
    for tool in TOOLS.values():
        names = list(tool.arguments.model_fields)
        given = {name: valid[name] for name in names if name in valid}
        for name in [*names, "unknown"]:
            for value in itertools.islice(values, 3):
                call = message("tools/call", {"name": tool.name, "arguments": given | {name: value}})
                reply = sender.send("POST", PATH, json.dumps(call).encode(), JSON)
                assert reply.status in (200, 400, 422), reply
                assert b"SANDBOX_INTERNAL_ERROR" not in reply.body, (tool.name, name, value, reply.body)
    odd: list[Any] = [None, [], "x", {"name": 1}, {"name": "sandbox_exec", "arguments": []}, {"_meta": 5}, MODERN]
    for params in odd:
        for more in ({}, {"id": None}, {"id": [1]}, {"id": "\ud800"}, {"jsonrpc": "1.0"}, {"method": "\ud800"}):
            sender.send("POST", PATH, json.dumps({**message("tools/call"), "params": params, **more}).encode(), JSON)
    sender.close()


def test_the_service_that_lists_its_own_name_is_reached_under_it(any_server: Api) -> None:
    with httpx.Client(timeout=60, trust_env=False, headers=headers(any_server) | JSON) as client:
        assert client.post(any_server.url + PATH, json=message("ping")).json()["result"] == {}
