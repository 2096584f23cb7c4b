"""A batch over REST."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Final

from sandloom.batch.ways import Names
from sandloom.contracts.rest import RouteAnswer
from sandloom.errors import ExecNotFound, SandboxNotFound, StaleRoute
from sandloom.sdk import Client, Result, Sandbox

#: Below every limit that a deployment may set on waiting calls.
WAIT_SECONDS: Final = 25


class RestBox:
    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox

    @property
    def route(self) -> RouteAnswer:
        return self._sandbox.route

    def attach(self, templates: Sequence[str]) -> None:
        self._sandbox.attach_templates(*templates)

    def put(self, path: str, content: bytes, mode: int) -> None:
        parent = str(PurePosixPath(path).parent)
        if parent != "/workspace":
            self._sandbox.files.mkdir(parent, parents=True)
        self._sandbox.files.write(path, content, mode=mode)

    def fetch(self, path: str, local: Path) -> None:
        self._sandbox.files.download(path, local)

    def run(self, command: Mapping[str, Any]) -> Result:
        headers = {"Prefer": f"wait={WAIT_SECONDS}"}
        answer = self._sandbox.fenced(
            "POST", "/exec", json=command, headers=headers, wait_seconds=WAIT_SECONDS, safe=True
        )
        return Result.model_validate(answer.json())


class RestWay:
    def __init__(self, client: Client, *, scope: str) -> None:
        self._client = client
        self.scope = scope

    def open(self, sandbox_id: str) -> RestBox:
        return RestBox(self._client.sandbox(sandbox_id, scope=self.scope, keep=True))

    def find(self, names: Names) -> Result | None:
        try:
            return self._client.attach(names.sandbox_id).process(names.exec_id).poll()
        except (SandboxNotFound, ExecNotFound):
            return None

    def wait(self, names: Names) -> Result:
        return self._client.attach(names.sandbox_id).process(names.exec_id).poll(wait_seconds=WAIT_SECONDS)

    def release(self, sandbox_id: str) -> None:
        try:
            self._client.attach(sandbox_id).release()
        except (SandboxNotFound, StaleRoute):
            return

    def close(self) -> None:
        self._client.close()
