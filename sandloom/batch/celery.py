"""A batch straight to the workers, without REST in between."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Final

from sandloom.batch.ways import Names
from sandloom.contracts.rest import RouteAnswer
from sandloom.direct import Fleet, FleetSandbox
from sandloom.direct.tasks import EXEC, EXEC_STATUS, RELEASE
from sandloom.errors import ExecNotFound, SandboxNotFound, StaleRoute, Unavailable, WorkerLost
from sandloom.sdk import Result

#: A task's result is waited for this long; then the record is looked at, which outlives worker and result backend.
RESULT_SECONDS: Final = 20.0
QUEUE_SECONDS: Final = 3_600.0
LOOK_SECONDS: Final = 1.0
RELEASE_SECONDS: Final = 20.0


class CeleryBox:
    def __init__(self, way: CeleryWay, sandbox: FleetSandbox) -> None:
        self._way = way
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
        content = self._sandbox.files.read(path)
        draft = local.with_name(f".{local.name}.{secrets.token_hex(4)}")
        try:
            draft.write_bytes(content)
            os.replace(draft, local)
        finally:
            draft.unlink(missing_ok=True)

    def run(self, command: Mapping[str, Any]) -> Result:
        try:
            answer = self._sandbox.call(EXEC, command, valid_seconds=QUEUE_SECONDS, wait_seconds=RESULT_SECONDS)
            return Result.model_validate(answer)
        except WorkerLost:
            record = self._way.find(Names(self._sandbox.id, str(command["exec_id"])))
            if record is None:
                raise
            return record


class CeleryWay:
    def __init__(self, fleet: Fleet, *, scope: str) -> None:
        self._fleet = fleet
        self.scope = scope

    def open(self, sandbox_id: str) -> CeleryBox:
        sandbox = self._fleet.sandbox(sandbox_id, scope=self.scope)
        sandbox.connect()
        return CeleryBox(self, sandbox)

    def find(self, names: Names) -> Result | None:
        try:
            return self._look(names)
        except (SandboxNotFound, ExecNotFound):
            return None

    def wait(self, names: Names) -> Result:
        time.sleep(LOOK_SECONDS)
        return self._look(names)

    def release(self, sandbox_id: str) -> None:
        try:
            self._fleet.call(RELEASE, {"sandbox_id": sandbox_id}, wait_seconds=RELEASE_SECONDS)
        except (SandboxNotFound, StaleRoute):
            return

    def close(self) -> None:
        self._fleet.close()

    def _look(self, names: Names) -> Result:
        """Raises Unavailable when no worker answers: without one nobody knows whether the command was begun."""
        try:
            return Result.model_validate(self._fleet.call(EXEC_STATUS, names._asdict()))
        except WorkerLost:
            raise Unavailable("no worker says what became of a command") from None
