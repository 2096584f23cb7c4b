"""A client that a generator makes from the OpenAPI document does a real job."""

from __future__ import annotations

import base64
import importlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from sandloom.cli.local_service import LocalService

pytestmark = pytest.mark.bwrap
CONFIG = """
post_hooks: []
content_type_overrides: {application/x-tar: application/octet-stream}
"""
Call = Callable[..., Any]


@pytest.fixture
def call(service: LocalService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """Calls an operation by its tag and name; the answer as the generated client parsed it, below ``of`` the status."""
    document = httpx.get(f"{service.url}/openapi.json", timeout=60, trust_env=False).content
    (tmp_path / "document.json").write_bytes(document)
    (tmp_path / "config.yml").write_text(CONFIG)
    argv = [
        str(Path(sys.executable).with_name("openapi-python-client")), "generate", "--path", "document.json",
        "--output-path", "generated_client", "--meta", "none", "--config", "config.yml", "--fail-on-warning",
    ]  # fmt: skip
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    monkeypatch.syspath_prepend(tmp_path)
    package = importlib.import_module("generated_client")
    client = package.AuthenticatedClient(service.url, token=service.token, httpx_args={"trust_env": False})

    def call(operation: str, *path: str, of: int = 200, **arguments: Any) -> Any:
        answer = importlib.import_module(f"generated_client.api.{operation}").sync_detailed(
            *path, client=client, **arguments
        )
        assert answer.status_code == of, answer.content
        return answer.parsed

    return call


def model(name: str, **fields: Any) -> Any:
    return getattr(importlib.import_module("generated_client.models"), name)(**fields)


def test_it_resolves_runs_polls_moves_files_and_releases(call: Call) -> None:
    body = model("ResolveBody", sandbox_id="generated", workspace_scope_id="scope")
    generation = call("sandboxes.resolve_sandbox", body=body).generation
    route = call("sandboxes.connect_sandbox", "generated", body=model("GenerationBody", generation=generation))
    assert (route.sandbox_id, route.status) == ("generated", "READY")

    content = base64.b64encode(b"from outside\n").decode()
    file = {"path": "/workspace/a", "generation": generation}
    call("files.write_file", "generated", body=model("FileWriteBody", **file, content_base64=content))
    command = model(
        "ExecBody", exec_id="generated-run", generation=generation, argv=["sh", "-c", "cat a; echo inside > b; exit 3"],
        background=True,
    )  # fmt: skip
    record = call("commands.start_exec", "generated", of=202, body=command)
    while record.finished_at is None:
        record = call("commands.get_exec", "generated", "generated-run", wait=20)
    assert (record.status, record.exit_code, record.stdout) == ("FAILED", 3, "from outside\n")
    assert record.usage.oom_killed is False
    polled = call("commands.exec_events", "generated", "generated-run", wait=1)
    assert (polled.ended, polled.events[0].data.to_dict()) == (True, {"status": "QUEUED"})
    read = call("files.read_file", "generated", path="/workspace/b", generation=generation)
    assert base64.b64decode(read.content_base64) == b"inside\n"
    raw = call("files.read_raw_file", "generated", path="/workspace/b", generation=generation)
    assert raw.payload.read() == b"inside\n"
    entries = call("files.list_files", "generated", path="/workspace", generation=generation).entries
    assert [(entry.name, entry.type_.value) for entry in entries] == [("a", "file"), ("b", "file")]

    problem = call("files.stat_file", "generated", of=404, path="/workspace/c", generation=generation)
    assert problem.code == "SANDBOX_FILE_NOT_FOUND"
    assert call("sandboxes.release_sandbox", "generated", generation=generation).status.value == "RELEASED"
    stale = call("files.stat_file", "generated", of=409, path="/workspace/a", generation=generation)
    assert stale.code == "STALE_SANDBOX_ROUTE"
