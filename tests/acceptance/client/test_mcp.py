"""Every tool on a real service, driven by the official client over both transports; and the example as it stands."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from mcp import Client, MCPError

from sandloom.cli.app import cli
from sandloom.cli.local_service import LocalService
from sandloom.mcp.tools import TOOLS
from tests.services.mcp import called, over_http, over_stdio, refused, text_of
from tests.services.process import ROOT

pytestmark = pytest.mark.bwrap


class Tour:
    """One way through all tools; ``used`` are those that were called."""

    def __init__(self) -> None:
        self.used: set[str] = set()

    async def __call__(self, client: Client) -> None:
        call = self._counted(client)
        assert [tool.name for tool in (await client.list_tools()).tools] == list(TOOLS)
        assert (await call("sandbox_profile"))["capabilities"]["selected_level"]
        made = await call("sandbox_create")
        box = {"sandbox_id": made["sandbox_id"]}
        fence = box | {"generation": made["generation"]}
        assert (made["status"], made["workspace"]) == ("READY", "new")
        assert (await call("sandbox_resolve", **box))["generation"] == fence["generation"]
        await self._files(call, fence)
        await self._commands(client, call, box, fence)
        assert (await call("sandbox_suspend", **fence))["suspended"] is True
        assert await refused(client, "sandbox_exec", **fence, command="true") == "SANDBOX_SUSPENDED"
        assert (await call("sandbox_resume", **box))["resumed"] is True
        assert (await call("sandbox_status", **box))["workspace"] == "kept"
        assert (await call("sandbox_read_file", **fence, path="/workspace/src/a.txt"))["content"] == "grüße"
        assert [entry["released_at"] for entry in (await call("sandbox_audit_get", **box))["history"]] == [None]
        assert (await call("sandbox_release", **fence))["status"] == "RELEASED"
        assert await refused(client, "sandbox_exec", **fence, argv=["true"]) == "STALE_SANDBOX_ROUTE"
        assert self.used == set(TOOLS)

    def _counted(self, client: Client) -> Any:
        async def call(tool: str, **arguments: Any) -> dict[str, Any]:
            self.used.add(tool)
            return await called(client, tool, **arguments)

        return call

    async def _files(self, call: Any, fence: dict[str, Any]) -> None:
        path = {"path": "/workspace/src/a.txt"}
        assert (await call("sandbox_write_file", **fence, **path, content="grüße", parents=True))["size_bytes"] == 7
        part = await call("sandbox_read_file", **fence, **path, max_bytes=3)
        assert (part["content"], part["next_offset"], part["size_bytes"]) == ("gr", 2, 7)
        assert (await call("sandbox_read_file", **fence, **path, offset=2))["content"] == "üße"
        await call("sandbox_write_file", **fence, path="/workspace/bytes", content_base64="/wA=", mode="0700")
        assert (await call("sandbox_read_file", **fence, path="/workspace/bytes"))["content_base64"] == "/wA="
        await call("sandbox_write_file", **fence, path="/workspace/empty", content="")
        assert (await call("sandbox_read_file", **fence, path="/workspace/empty"))["content"] == ""

    async def _commands(self, client: Client, call: Any, box: dict[str, Any], fence: dict[str, Any]) -> None:
        ran = await call("sandbox_exec", **fence, argv=["sh", "-c", "cat; seq 1 9999; exit 3"], stdin="in\n", env={})
        assert (ran["status"], ran["exit_code"], ran["stdout"]["next_offset"]) == ("FAILED", 3, 20_000)
        assert ran["stdout"]["text"].startswith("in\n1\n2\n")
        end = await client.call_tool("sandbox_exec_status", box | {"exec_id": ran["exec_id"], "stdout_offset": -10})
        assert "9998\n9999\n[characters" in text_of(end)
        await call("sandbox_exec", **fence, command="sleep 600", exec_id="slow", wait_seconds=0)
        assert await refused(client, "sandbox_suspend", **fence) == "SANDBOX_SUSPEND_BUSY"
        assert (await call("sandbox_cancel", **box, exec_id="slow"))["cancelled"] is True
        ended = await call("sandbox_exec_status", **box, exec_id="slow", wait_seconds=30)
        assert (ended["status"], ended["finished"], ended["reason"]) == ("CANCELLED", True, "cancelled")
        assert await refused(client, "sandbox_read_file", **fence, path="/etc/passwd") == "SANDBOX_PATH_INVALID"
        assert await refused(client, "sandbox_read_file", **fence, path="/workspace/no") == "SANDBOX_FILE_NOT_FOUND"
        assert await refused(client, "sandbox_read_file", **fence, path="/workspace/src/a.txt", offset=99) == (
            "RANGE_NOT_SATISFIABLE"
        )


def test_every_tool_works_over_http(service: LocalService) -> None:
    over_http(service.url, {"Authorization": f"Bearer {service.token}"}, "auto", Tour())


def test_every_tool_works_over_stdio(environment: dict[str, str], tmp_path: Path) -> None:
    over_stdio(environment, "legacy", Tour(), cwd=str(tmp_path))


def test_a_wrong_token_is_an_error_of_the_transport_over_http_and_of_each_tool_over_stdio(
    service: LocalService, environment: dict[str, str], tmp_path: Path
) -> None:
    async def drive(client: Client) -> str:
        return await refused(client, "sandbox_status", sandbox_id="box")

    with pytest.raises(ExceptionGroup) as caught:
        over_http(service.url, {"Authorization": "Bearer wrong"}, "legacy", drive)
    assert caught.group_contains(MCPError)
    wrong = environment | {"SANDBOX_INTERNAL_TOKEN": "wrong"}
    assert over_stdio(wrong, "auto", drive, cwd=str(tmp_path)) == "UNAUTHORIZED"


def test_a_service_that_is_not_there_is_an_error_of_each_tool(environment: dict[str, str], tmp_path: Path) -> None:
    async def drive(client: Client) -> str:
        assert len((await client.list_tools()).tools) == len(TOOLS)
        return await refused(client, "sandbox_status", sandbox_id="box")

    away = environment | {"SANDBOX_BASE_URL": "http://127.0.0.1:9"}
    assert over_stdio(away, "auto", drive, cwd=str(tmp_path)) == "SERVICE_UNAVAILABLE"


def test_without_a_token_the_command_says_so_and_ends(environment: dict[str, str], tmp_path: Path) -> None:
    env = environment | {"SANDBOX_DATA_DIR": str(tmp_path), "SANDBOX_INTERNAL_TOKEN": ""}
    done = subprocess.run(
        [sys.executable, "-m", "sandloom", "mcp"], env=env, cwd=tmp_path, input="", capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("sandloom: no token for ")


def test_the_example_works(environment: dict[str, str], tmp_path: Path) -> None:
    example = ROOT / "examples" / "mcp_tools.py"
    for words in ([], ["--stdio"]):
        done = subprocess.run(
            [sys.executable, str(example), *words], env=environment, cwd=tmp_path, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        lines = done.stdout.splitlines()
        assert lines[0] == f"{len(TOOLS)} tools"
        assert lines[1:] == ["primes: 2 3 5 7 11 13 17 19 23 29", "an error: SANDBOX_FILE_NOT_FOUND", "RELEASED"]


def test_the_configurations_of_the_page_start_the_command_that_there_is() -> None:
    page = (ROOT / "docs" / "mcp.md").read_text("utf-8")
    found = [json.loads(block) for block in re.findall(r"^```json\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)]
    servers = [server for block in found for group in block.values() for server in group.values()]
    assert len(servers) >= 4
    for server in servers:
        if "command" in server:
            assert (server["command"], server["args"]) == ("sandloom", ["mcp"])
        else:
            assert server["url"].endswith("/api/v1/sandboxes/mcp/streamable-http")
    for line in re.findall(r"^claude mcp add .*?[^\\]$", page, re.MULTILINE | re.DOTALL):
        assert shlex.split(line.replace("\\\n", " "))[-2:] == ["sandloom", "mcp"] or "streamable-http" in line
    assert CliRunner().invoke(cli, ["mcp", "--help"]).exit_code == 0
    for tool in TOOLS:
        assert f"`{tool}`" in page
