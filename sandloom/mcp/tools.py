"""The tools. A docstring is what a model is told, the hints of a signature are the schemas that it gets."""

from __future__ import annotations

import base64
import inspect
import posixpath
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar, get_type_hints

from pydantic import BaseModel

from sandloom.contracts.rest import (
    AuditAnswer,
    CancelAnswer,
    ExecAnswer,
    ReleaseAnswer,
    ResumeAnswer,
    RouteAnswer,
    SuspendAnswer,
)
from sandloom.errors import Category, RangeNotSatisfiable, SandloomError
from sandloom.ids import new_id
from sandloom.mcp.arguments import (
    CancelArguments,
    CreateArguments,
    ExecArguments,
    ExecStatusArguments,
    FencedArguments,
    NoArguments,
    ReadArguments,
    ReleaseArguments,
    ResolveArguments,
    SandboxArguments,
    WriteArguments,
)
from sandloom.mcp.rest import Ask, Rest
from sandloom.mcp.results import ExecResult, ProfileResult, ReadResult, WriteResult, file_part, output
from sandloom.mcp.texts import as_json, exec_text, read_text

Run = Callable[[Rest, Any], Awaitable[BaseModel]]
_Run = TypeVar("_Run", bound=Run)

#: Moving a sandbox's files may take so long.
_MOVE_SECONDS = 240
_QUEUED = ("QUEUED", "RUNNING")


@dataclass(frozen=True, slots=True)
class Tool:
    """``reads``: it changes nothing; ``destroys``: files or commands may be gone; ``repeats``: twice is as once."""

    name: str
    description: str
    arguments: type[BaseModel]
    result: type[BaseModel]
    run: Run
    text: Callable[[Any], str]
    reads: bool
    destroys: bool
    repeats: bool


#: By name, in the order in which they are used.
TOOLS: dict[str, Tool] = {}


def _tool(
    *, text: Callable[[Any], str] = as_json, reads: bool = False, destroys: bool = False, repeats: bool = False
) -> Callable[[_Run], _Run]:
    def declare(run: _Run) -> _Run:
        hints, name = get_type_hints(run), run.__name__
        description = inspect.getdoc(run) or ""
        TOOLS[name] = Tool(name, description, hints["arguments"], hints["return"], run, text, reads, destroys, repeats)
        return run

    return declare


@_tool(reads=True)
async def sandbox_profile(rest: Rest, arguments: NoArguments) -> ProfileResult:
    """Show what sandboxes of this deployment can do: isolation level, network, resource limits, toolchains."""
    health: Any = (await rest(Ask("GET", "/healthz", safe=True))).json()
    worker = health["worker"] or {}
    return ProfileResult(
        status=health["status"],
        version=health["version"],
        live_workers=health["workers"]["live"],
        profile_hash=worker.get("profile_hash"),
        capabilities=worker.get("capabilities"),
    )


@_tool(repeats=True)
async def sandbox_resolve(rest: Rest, arguments: ResolveArguments) -> RouteAnswer:
    """Find a sandbox by its id, make it, or wake it. `workspace` says what became of its files (new, kept, restored,
    lost); pass `generation` on to the other tools."""
    body = arguments.model_dump()
    return RouteAnswer.model_validate((await rest(Ask("POST", "/sandboxes/resolve", body, safe=True))).json())


@_tool(repeats=True)
async def sandbox_create(rest: Rest, arguments: CreateArguments) -> RouteAnswer:
    """Make a sandbox, or find the one with this id, and have its /workspace made ready. Keep `sandbox_id` and
    `generation`: the other tools need them."""
    sandbox_id, generation = arguments.sandbox_id or f"sbx-{new_id()}", arguments.generation
    if generation is None:
        wanted = ResolveArguments(
            sandbox_id=sandbox_id, workspace_scope_id=arguments.workspace_scope_id, profile=arguments.profile
        )
        generation = (await sandbox_resolve(rest, wanted)).generation
    ask = Ask("POST", f"/sandboxes/{sandbox_id}", {"generation": generation}, safe=True)
    return RouteAnswer.model_validate((await rest(ask)).json())


@_tool(reads=True)
async def sandbox_status(rest: Rest, arguments: SandboxArguments) -> RouteAnswer:
    """Show a sandbox: its status, its current generation, when it expires."""
    return RouteAnswer.model_validate((await rest(Ask("GET", _path(arguments), safe=True))).json())


@_tool(reads=True)
async def sandbox_audit_get(rest: Rest, arguments: SandboxArguments) -> AuditAnswer:
    """Show the lifecycle of a sandbox: each generation, who made it, when and why it was released."""
    return AuditAnswer.model_validate((await rest(Ask("GET", f"{_path(arguments)}/audit", safe=True))).json())


@_tool(text=exec_text, destroys=True)
async def sandbox_exec(rest: Rest, arguments: ExecArguments) -> ExecResult:
    """Run a command in a sandbox, by default in /workspace. A command that still runs after `wait_seconds` goes on, and
    sandbox_exec_status follows it. A non-zero exit code is a result, not an error."""
    exec_id = arguments.exec_id or f"run-{new_id()}"
    argv = ["sh", "-c", arguments.command] if arguments.command is not None else arguments.argv
    kept = {"generation", "cwd", "env", "stdin", "timeout_seconds", "exec_scope", "labels", "limits"}
    body = {"exec_id": exec_id, "argv": argv, **arguments.model_dump(include=kept, exclude_none=True)}
    wait = arguments.wait_seconds
    body["background"] = wait == 0
    # The exec_id makes it safe: sent again, the command does not run again.
    headers = {"Prefer": f"wait={wait}"} if wait else {}
    ask = Ask("POST", f"{_path(arguments)}/exec", body, headers=headers, wait_seconds=wait, safe=True)
    try:
        record = ExecAnswer.model_validate((await rest(ask)).json())
    except SandloomError as error:
        if error.category is Category.WAIT:
            error.extra.setdefault("exec_id", exec_id)
        raise
    return _result(record, 0, 0, arguments.max_output_chars)


@_tool(text=exec_text, reads=True)
async def sandbox_exec_status(rest: Rest, arguments: ExecStatusArguments) -> ExecResult:
    """Show a command, its output so far or a later part of it, and with `wait_seconds` wait for its end."""
    path = f"{_path(arguments)}/exec/{arguments.exec_id}"
    ask = Ask("GET", path, query={"wait": arguments.wait_seconds}, wait_seconds=arguments.wait_seconds, safe=True)
    record = ExecAnswer.model_validate((await rest(ask)).json())
    return _result(record, arguments.stdout_offset, arguments.stderr_offset, arguments.max_output_chars)


@_tool(destroys=True, repeats=True)
async def sandbox_cancel(rest: Rest, arguments: CancelArguments) -> CancelAnswer:
    """End a command and every process that it started; `cancelled` is false when it had ended already."""
    body = arguments.model_dump(include={"generation"}, exclude_none=True)
    ask = Ask("POST", f"{_path(arguments)}/exec/{arguments.exec_id}/cancel", body, safe=True)
    return CancelAnswer.model_validate((await rest(ask)).json())


@_tool(destroys=True, repeats=True)
async def sandbox_write_file(rest: Rest, arguments: WriteArguments) -> WriteResult:
    """Make or replace a file below /workspace, all of it at once."""
    fence, files = {"generation": arguments.generation}, f"{_path(arguments)}/files"
    if arguments.parents:
        above = {"path": posixpath.dirname(arguments.path), "parents": True}
        await rest(Ask("POST", f"{files}/mkdir", above | fence, safe=True))
    encoded = arguments.content_base64
    if encoded is None:
        encoded = base64.b64encode((arguments.content or "").encode()).decode()
    body = {"path": arguments.path, "content_base64": encoded, "mode": int(arguments.mode, 8), **fence}
    changed: Any = (await rest(Ask("PUT", files, body, safe=True))).json()
    return WriteResult(path=changed["path"], size_bytes=len(base64.b64decode(encoded)))


@_tool(text=read_text, reads=True)
async def sandbox_read_file(rest: Rest, arguments: ReadArguments) -> ReadResult:
    """Read a file, or from `offset` on a part of it. What is not text comes as base64."""
    last = arguments.offset + arguments.max_bytes - 1
    query: dict[str, str | int] = {"path": arguments.path, "generation": arguments.generation}
    headers = {"Range": f"bytes={arguments.offset}-{last}"}
    try:
        reply = await rest(Ask("GET", f"{_path(arguments)}/files/raw", query=query, headers=headers, safe=True))
    except RangeNotSatisfiable as error:
        if arguments.offset or error.extra.get("size_bytes") != 0:
            raise
        return file_part(arguments.path, b"", 0, 0)
    size = int(reply.headers["Content-Range"].rpartition("/")[2])
    return file_part(arguments.path, reply.content, arguments.offset, size)


@_tool(destroys=True, repeats=True)
async def sandbox_release(rest: Rest, arguments: ReleaseArguments) -> ReleaseAnswer:
    """End a sandbox for good: its commands are ended, its files deleted. Save what is needed first."""
    query = arguments.model_dump(include={"generation"}, exclude_none=True)
    return ReleaseAnswer.model_validate((await rest(Ask("DELETE", _path(arguments), query=query, safe=True))).json())


@_tool(repeats=True)
async def sandbox_suspend(rest: Rest, arguments: FencedArguments) -> SuspendAnswer:
    """Give a quiet sandbox's slot back while it waits for something, and keep its files. Processes are not kept."""
    body = {"generation": arguments.generation}
    ask = Ask("POST", f"{_path(arguments)}/suspend", body, wait_seconds=_MOVE_SECONDS, safe=True)
    return SuspendAnswer.model_validate((await rest(ask)).json())


@_tool(repeats=True)
async def sandbox_resume(rest: Rest, arguments: SandboxArguments) -> ResumeAnswer:
    """Wake a suspended sandbox; use the generation that is returned from then on."""
    ask = Ask("POST", f"{_path(arguments)}/resume", {}, wait_seconds=_MOVE_SECONDS, safe=True)
    return ResumeAnswer.model_validate((await rest(ask)).json())


def _path(arguments: SandboxArguments) -> str:
    return f"/sandboxes/{arguments.sandbox_id}"


def _result(record: ExecAnswer, stdout_offset: int, stderr_offset: int, limit: int) -> ExecResult:
    same = record.model_dump(include=set(ExecResult.model_fields), exclude={"stdout", "stderr"})
    return ExecResult(
        **same,
        finished=record.status not in _QUEUED,
        stdout=output(record.stdout or "", stdout_offset, limit),
        stderr=output(record.stderr or "", stderr_offset, limit),
    )
