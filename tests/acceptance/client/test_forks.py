"""Copies of sandboxes through a client and the command line."""

from __future__ import annotations

import json

import pytest

from sandloom import Client
from sandloom.errors import SandboxBusy, SandboxExists, StaleRoute, ValidationFailed
from tests.acceptance.client.conftest import Run

pytestmark = pytest.mark.bwrap


def test_a_copy_through_the_client_and_the_command_line(client: Client, sandloom: Run) -> None:
    with client.sandbox(scope="forks") as source:
        source.files.write("/workspace/f", "first")
        with source.fork() as copy:
            assert (copy.route.workspace, copy.route.workspace_scope_id, copy.route.status) == (
                "kept",
                "forks",
                "READY",
            )
            copy.files.write("/workspace/f", "second")
            assert source.files.read_text("/workspace/f") == "first"
            assert copy.run("cat f").stdout == "second"
            with pytest.raises(SandboxExists):
                source.fork(copy.id)
        process = source.start(["sleep", "60"], scope="long")
        with pytest.raises(SandboxBusy):
            source.fork()
        process.cancel()
        process.wait()
        with pytest.raises(ValidationFailed):
            source.fork("a/b")

        made = json.loads(sandloom("fork", source.id, f"{source.id}-2", "--scope", "other", "--json").stdout)
        assert (made["sandbox_id"], made["workspace_scope_id"]) == (f"{source.id}-2", "other")
        with client.sandbox(made["sandbox_id"], scope="other") as second:
            assert second.files.read_text("/workspace/f") == "first"
        refused = sandloom("fork", source.id, source.id)
        assert (refused.returncode, "SANDBOX_EXISTS" in refused.stderr) == (1, True)
    with pytest.raises(StaleRoute):
        source.fork()
