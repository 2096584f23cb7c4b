"""The tools as they are listed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from mcp import Client

from sandloom.mcp.rest import Ask, Reply
from sandloom.mcp.server import tool_server
from sandloom.mcp.tools import TOOLS, Tool
from tests.services.mcp import MODES, refused

#: What clients rely on.
CONTRACT = {
    "sandbox_profile", "sandbox_resolve", "sandbox_create", "sandbox_status", "sandbox_audit_get", "sandbox_exec",
    "sandbox_exec_status", "sandbox_cancel", "sandbox_write_file", "sandbox_read_file", "sandbox_release",
    "sandbox_suspend", "sandbox_resume",
}  # fmt: skip
each_tool = pytest.mark.parametrize("tool", TOOLS.values(), ids=lambda tool: tool.name)


def test_the_tools_are_those_of_the_contract() -> None:
    assert set(TOOLS) == CONTRACT


@each_tool
def test_its_schemas_are_objects_that_refuse_unknown_arguments(tool: Tool) -> None:
    taken, given = tool.arguments.model_json_schema(), tool.result.model_json_schema(mode="serialization")
    for schema in (taken, given):
        Draft202012Validator.check_schema(schema)
        assert schema["type"] == "object"
    assert taken["additionalProperties"] is False


@each_tool
def test_a_model_is_told_what_it_does(tool: Tool) -> None:
    assert tool.description.endswith(".")
    assert not (tool.reads and tool.destroys)


@pytest.mark.parametrize("mode", MODES)
def test_a_fault_of_ours_shows_nothing_of_itself(mode: str) -> None:
    async def broken(ask: Ask) -> Reply:
        raise RuntimeError("the secret is hunter2")

    async def drive() -> Any:
        async with Client(tool_server(broken), mode=mode) as client:
            result = await client.call_tool("sandbox_status", {"sandbox_id": "box"})
            assert "hunter2" not in result.model_dump_json()
            return await refused(client, "sandbox_status", sandbox_id="box")

    assert asyncio.run(drive()) == "SANDBOX_INTERNAL_ERROR"
