"""The life of a sandbox."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from sandloom.contracts.rest import Body, GenerationBody, Name, OptionalGenerationBody, ResolveBody, ScopeId
from sandloom.errors import SandboxSuspended
from sandloom.ids import SandboxKey
from sandloom.sandboxes.states import SandboxStatus
from workers.answers import route_answer
from workers.reception import Lane
from workers.tasks.requests import Call, public


class ConnectArgs(GenerationBody):
    sandbox_id: Name


class SuspendArgs(GenerationBody):
    sandbox_id: Name
    idle_since_us: Annotated[int, Field(ge=0)] | None = None


class ResumeArgs(Body):
    sandbox_id: Name


class ForkArgs(GenerationBody):
    """``sandbox_id`` is the source's, as in every task."""

    sandbox_id: Name
    copy_id: Name
    workspace_scope_id: ScopeId


class ReleaseArgs(OptionalGenerationBody):
    sandbox_id: Name


@public("sandloom.resolve", Lane.LIFECYCLE, ResolveBody)
def resolve(call: Call[ResolveBody]) -> dict[str, Any]:
    """Any worker may say where a sandbox lives, and wake it."""
    args, node = call.args, call.node
    try:
        route = node.sandboxes.resolve(call.tenant_id, args.sandbox_id, args.workspace_scope_id, args.profile, call.by)
    except SandboxSuspended:
        route, _ = node.suspender.resume(call.sandbox, call.by)
    return route_answer(route)


@public("sandloom.connect", Lane.LIFECYCLE, ConnectArgs)
def connect(call: Call[ConnectArgs]) -> dict[str, Any]:
    return route_answer(call.node.homes.connect(call.sandbox, call.args.generation))


@public("sandloom.suspend", Lane.LIFECYCLE, SuspendArgs)
def suspend(call: Call[SuspendArgs]) -> dict[str, Any]:
    args = call.args
    route, suspended = call.node.suspender.suspend(call.sandbox, args.generation, args.idle_since_us)
    return {**route_answer(route), "suspended": suspended}


@public("sandloom.resume", Lane.LIFECYCLE, ResumeArgs)
def resume(call: Call[ResumeArgs]) -> dict[str, Any]:
    route, resumed = call.node.suspender.resume(call.sandbox, call.by)
    return {**route_answer(route), "resumed": resumed}


@public("sandloom.fork", Lane.TEMPLATES, ForkArgs)
def fork(call: Call[ForkArgs]) -> dict[str, Any]:
    args = call.args
    copy = SandboxKey(call.tenant_id, args.copy_id)
    route = call.node.forker.fork(call.sandbox, args.generation, copy, args.workspace_scope_id, call.by)
    return route_answer(route)


@public("sandloom.release", Lane.LIFECYCLE, ReleaseArgs)
def release(call: Call[ReleaseArgs]) -> dict[str, Any]:
    """The row moves first, and only once: the API has moved it before it asks."""
    route = call.node.sandboxes.get(call.sandbox)
    if route.status is not SandboxStatus.RELEASING or call.args.generation not in (None, route.generation):
        route = call.node.sandboxes.begin_release(call.sandbox, call.args.generation, call.by, "released")
    if route.status is not SandboxStatus.RELEASED:
        route = call.node.lifecycle.release(call.sandbox, route.generation)
    return {"sandbox_id": route.key.sandbox_id, "status": route.status.value}
