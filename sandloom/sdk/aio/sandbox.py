"""One sandbox: run, start, stream, files, release."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Self, Unpack

import httpx

from sandloom.contracts.rest import AuditAnswer, RouteAnswer
from sandloom.contracts.templates import TemplateAnswer, TemplateList
from sandloom.errors import SandloomError, StaleGeneration, StaleRoute
from sandloom.ids import new_id
from sandloom.sdk.aio.files import AsyncFiles
from sandloom.sdk.aio.process import AsyncProcess
from sandloom.sdk.aio.transport import AsyncTransport
from sandloom.sdk.aio.waiting import Pending, pending
from sandloom.sdk.commands import Command, CommandOptions, Sink, exec_body, not_lost
from sandloom.sdk.events import Event
from sandloom.sdk.results import Result

#: A foreground answer is awaited this long per call; then the client polls.
_FOREGROUND_SECONDS = 25
#: Suspending, resuming and copying may move all the files of a sandbox.
_SLEEP_SECONDS = 240
#: Building and fetching take as long as the deployment lets them.
_TEMPLATE_SECONDS = 700


class AsyncSandbox:
    """Made by ``AsyncClient.sandbox``. As a context manager it releases the sandbox at the end unless ``keep``."""

    def __init__(self, transport: AsyncTransport, route: RouteAnswer, *, keep: bool) -> None:
        self._transport = transport
        self.route = route
        self.keep = keep
        self.files = AsyncFiles(self, transport)

    @property
    def id(self) -> str:
        return self.route.sandbox_id

    @property
    def generation(self) -> int:
        """The fencing token that every call carries."""
        return self.route.generation

    @property
    def path(self) -> str:
        return f"/sandboxes/{self.id}"

    async def run(
        self,
        command: Command,
        *,
        on_stdout: Sink | None = None,
        on_stderr: Sink | None = None,
        **options: Unpack[CommandOptions],
    ) -> Result:
        """Run a command to its end. A non-zero exit code is a result, not an exception; a command whose worker was lost
        has none and raises WorkerLost.

        ``options`` are those of ``CommandOptions``: ``timeout``, ``cwd``, ``env``, ``scope``, ``stdin`` … With
        ``on_stdout`` or ``on_stderr`` output is handed over as it appears.
        """
        body = exec_body(command, **options)
        if on_stdout is not None or on_stderr is not None:
            process = await self._start(body)
            async for event in process.events():
                sink = {"stdout": on_stdout, "stderr": on_stderr}.get(event.kind)
                if sink is not None:
                    sink(event.text)
            return not_lost(await process.wait())
        answer = await self.fenced(
            "POST",
            "/exec",
            json=body,
            headers={"Prefer": f"wait={_FOREGROUND_SECONDS}"},
            wait_seconds=_FOREGROUND_SECONDS,
            safe=True,
        )
        result = Result.model_validate(answer.json())
        return not_lost(result if result.finished else await self.process(result.exec_id).wait())

    async def start(self, command: Command, **options: Unpack[CommandOptions]) -> AsyncProcess:
        """Start a command in the background. Commands with different ``scope`` run side by side."""
        return await self._start(exec_body(command, **options))

    async def stream(self, command: Command, **options: Unpack[CommandOptions]) -> AsyncIterator[Event]:
        """Start a command, when the first event is asked for, and yield its events until it has ended."""
        process = await self.start(command, **options)
        async for event in process.events():
            yield event

    def process(self, exec_id: str) -> AsyncProcess:
        """A command that was started before, here or elsewhere."""
        return AsyncProcess(self._transport, self.path, exec_id)

    async def processes(self, *, limit: int = 100, offset: int = 0) -> list[Result]:
        """Records of this sandbox's commands, newest first, without output."""
        params = {"limit": limit, "offset": offset}
        answer = await self._transport.call("GET", f"{self.path}/exec", params=params, safe=True)
        return [Result.model_validate(item) for item in answer.json()["execs"]]

    async def publish_template(
        self, name: str, source_path: str = "/envs", *, description: str = "", labels: Mapping[str, str] | None = None
    ) -> TemplateAnswer:
        """Publish a directory of this sandbox, in which nothing may run meanwhile (SandboxBusy)."""
        body = {"name": name, "source_path": source_path, "description": description, "labels": dict(labels or {})}
        answer = await self.fenced("POST", "/templates", json=body, wait_seconds=_TEMPLATE_SECONDS)
        return TemplateAnswer.model_validate(answer.json())

    async def attach_templates(self, *templates: str) -> list[TemplateAnswer]:
        """Mount these, and no others, read-only at ``/envs/<name>``: ``name``, or ``name@sha256:<hex>``."""
        body = {"templates": list(templates)}
        answer = await self.fenced("PUT", "/templates", json=body, wait_seconds=_TEMPLATE_SECONDS, safe=True)
        return TemplateList.model_validate(answer.json()).templates

    async def refresh(self) -> RouteAnswer:
        """Resolve and connect again, and use the route that comes back; its ``workspace`` tells what became of it."""
        body = {
            "sandbox_id": self.id,
            "workspace_scope_id": self.route.workspace_scope_id,
            "profile": self.route.profile_id,
        }
        answer = await self._transport.call("POST", "/sandboxes/resolve", json=body, safe=True)
        self.route = RouteAnswer.model_validate(answer.json())
        return await self.connect()

    async def connect(self) -> RouteAnswer:
        """Have the workspace made ready on its worker; idempotent."""
        answer = await self._transport.call("POST", self.path, json={"generation": self.generation}, safe=True)
        self.route = RouteAnswer.model_validate(answer.json())
        return self.route

    async def suspend(self) -> bool:
        """Give its slot back and keep its files; False when it was suspended before. SuspendBusy while anything runs.

        Calls are refused until ``resume``, or until somebody resolves it.
        """
        answer = await self.fenced("POST", "/suspend", json={}, wait_seconds=_SLEEP_SECONDS, safe=True)
        self.route = RouteAnswer.model_validate(answer.json())
        return bool(answer.json()["suspended"])

    async def resume(self) -> bool:
        """Wake it, and use the route that comes back; False when it was awake."""
        answer = await self._transport.call("POST", f"{self.path}/resume", wait_seconds=_SLEEP_SECONDS, safe=True)
        self.route = RouteAnswer.model_validate(answer.json())
        return bool(answer.json()["resumed"])

    def fork(
        self, sandbox_id: str | None = None, *, scope: str | None = None, keep: bool = False
    ) -> Pending[AsyncSandbox]:
        """Another sandbox with a copy of the files of this one, in which nothing may run meanwhile (SandboxBusy).

        Without an id a new one is chosen; ``scope`` is this one's unless given.
        """
        return pending(self._fork(sandbox_id or f"sbx-{new_id()}", scope or self.route.workspace_scope_id, keep))

    async def _fork(self, sandbox_id: str, scope: str, keep: bool) -> AsyncSandbox:
        body = {"sandbox_id": sandbox_id, "workspace_scope_id": scope}
        answer = await self.fenced("POST", "/fork", json=body, wait_seconds=_SLEEP_SECONDS)
        return AsyncSandbox(self._transport, RouteAnswer.model_validate(answer.json()), keep=keep)

    async def audit(self) -> AuditAnswer:
        """Its lives so far."""
        answer = await self._transport.call("GET", f"{self.path}/audit", safe=True)
        return AuditAnswer.model_validate(answer.json())

    async def release(self) -> str:
        """End its commands and delete its files; returns RELEASED, or RELEASING when its worker does not answer.

        One that moved to another generation with its files is released too. StaleRoute: it was released already, and
        somebody has made it anew.
        """
        try:
            return await self._release()
        except StaleRoute:
            answer = await self._transport.call("GET", self.path, safe=True)
            route = RouteAnswer.model_validate(answer.json())
            if route.workspace == "new" or route.generation == self.generation:
                raise
            self.route = route
            return await self._release()

    async def _release(self) -> str:
        answer = await self._transport.call("DELETE", self.path, params={"generation": self.generation}, safe=True)
        return str(answer.json()["status"])

    async def fenced(
        self,
        method: str,
        path: str,
        *,
        json: Mapping[str, Any] | None = None,
        params: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        wait_seconds: float = 0,
        safe: bool = False,
    ) -> httpx.Response:
        """A call that carries the generation.

        A stale one is resolved again once, when the call is safe to repeat and the files were kept. Otherwise
        StaleRoute is raised: nobody goes on with an empty directory, or brings back a released sandbox, unknowingly.
        """

        async def send() -> httpx.Response:
            fence = {"generation": self.generation}
            in_body = json is not None
            return await self._transport.call(
                method,
                self.path + path,
                json={**json, **fence} if json is not None else None,
                params=params if in_body else {**(params or {}), **fence},
                headers=headers,
                wait_seconds=wait_seconds,
                safe=safe,
            )

        try:
            return await send()
        except (StaleRoute, StaleGeneration):
            if not safe or await self._released():
                raise
            if (await self.refresh()).workspace not in ("kept", "restored"):
                raise
            return await send()

    async def _released(self) -> bool:
        answer = await self._transport.call("GET", self.path, safe=True)
        return answer.json()["status"] in ("RELEASING", "RELEASED")

    async def _start(self, body: Mapping[str, Any]) -> AsyncProcess:
        answer = await self.fenced("POST", "/exec", json={**body, "background": True}, safe=True)
        return self.process(str(answer.json()["exec_id"]))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.keep:
            return
        # What this block had is gone when its route is stale; and an error that ended the block is the one to see.
        with suppress(StaleRoute if error is None else SandloomError):
            await self.release()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id!r}, generation={self.generation}, workspace={self.route.workspace!r})"
