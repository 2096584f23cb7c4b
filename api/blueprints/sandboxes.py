"""Sandboxes from resolve to release."""

from __future__ import annotations

from flask import Response

from api import raises
from api.answers import answer
from api.operations import Call, Group
from api.queries import NoQuery, OptionalGeneration, SandboxPage
from sandloom.contracts.rest import (
    AuditAnswer,
    EmptyBody,
    ForkBody,
    GenerationBody,
    ReleaseAnswer,
    ResolveBody,
    ResumeAnswer,
    RouteAnswer,
    RouteList,
    SuspendAnswer,
)  # fmt: skip
from sandloom.execs.answers import route_answer
from sandloom.sandboxes.states import SandboxStatus

group = Group("sandboxes", "Sandboxes")


@group.operation("POST", "/sandboxes/resolve", {200: RouteAnswer}, raises=raises.RESOLVED)
def resolve_sandbox(call: Call, query: NoQuery, body: ResolveBody) -> Response:
    """Create a sandbox, find it, wake it, or give it a new owner."""
    route = call.services.sandbox_gateway.resolve(
        call.tenant_id, body.sandbox_id, body.workspace_scope_id, body.profile, call.principal.by
    )
    return answer(route_answer(route))


@group.operation("GET", "/sandboxes", {200: RouteList})
def list_sandboxes(call: Call, query: SandboxPage) -> Response:
    """List the tenant's sandboxes."""
    routes, total = call.services.sandboxes.list(
        call.tenant_id, query.status, query.workspace_scope_id, query.search, query.limit, query.offset
    )
    page = [route_answer(route) for route in routes]
    return answer(RouteList(sandboxes=page, total=total, limit=query.limit, offset=query.offset))


@group.operation("GET", "/sandboxes/<sandbox_id>", {200: RouteAnswer}, raises=raises.KNOWN)
def get_sandbox(call: Call, sandbox_id: str, query: NoQuery) -> Response:
    """Show a sandbox's route."""
    return answer(route_answer(call.services.sandboxes.get(call.sandbox(sandbox_id))))


@group.operation("POST", "/sandboxes/<sandbox_id>", {200: RouteAnswer}, raises=raises.OWNED)
def connect_sandbox(call: Call, sandbox_id: str, query: NoQuery, body: GenerationBody) -> Response:
    """Make the workspace ready on its worker."""
    route = call.services.sandbox_gateway.connect(call.sandbox(sandbox_id), body.generation)
    return answer(route_answer(route))


@group.operation("POST", "/sandboxes/<sandbox_id>/suspend", {200: SuspendAnswer}, raises=raises.SUSPENDED)
def suspend_sandbox(call: Call, sandbox_id: str, query: NoQuery, body: GenerationBody) -> Response:
    """Give its slot back and keep its files; only a sandbox in which nothing runs."""
    route, suspended = call.services.sandbox_gateway.suspend(call.sandbox(sandbox_id), body.generation)
    return answer(SuspendAnswer(**route_answer(route).model_dump(), suspended=suspended))


@group.operation("POST", "/sandboxes/<sandbox_id>/resume", {200: ResumeAnswer}, raises=raises.RESOLVED)
def resume_sandbox(call: Call, sandbox_id: str, query: NoQuery, body: EmptyBody | None) -> Response:
    """Wake a suspended sandbox; its generation may be another one then."""
    route, resumed = call.services.sandbox_gateway.resume(call.sandbox(sandbox_id), call.principal.by)
    return answer(ResumeAnswer(**route_answer(route).model_dump(), resumed=resumed))


@group.operation("POST", "/sandboxes/<sandbox_id>/fork", {200: RouteAnswer}, raises=raises.FORKED)
def fork_sandbox(call: Call, sandbox_id: str, query: NoQuery, body: ForkBody) -> Response:
    """Make another sandbox with a copy of its files; only of one in which nothing runs."""
    route = call.services.sandbox_gateway.fork(
        call.sandbox(sandbox_id), body.generation, body.sandbox_id, body.workspace_scope_id
    )
    return answer(route_answer(route))


@group.operation(
    "DELETE",
    "/sandboxes/<sandbox_id>",
    {200: ReleaseAnswer, 202: ReleaseAnswer},
    answer_headers={202: ("Retry-After",)},
    raises=raises.FENCED,
)
def release_sandbox(call: Call, sandbox_id: str, query: OptionalGeneration) -> Response:
    """End its commands and reclaim what it holds; 202 when its owner cannot be reached now."""
    route = call.services.sandbox_gateway.release(call.sandbox(sandbox_id), query.generation, call.principal.by)
    released = route.status is SandboxStatus.RELEASED
    body = ReleaseAnswer(sandbox_id=sandbox_id, status="RELEASED" if released else "RELEASING")
    return answer(body, 200 if released else 202, None if released else {"Retry-After": "5"})


@group.operation("GET", "/sandboxes/<sandbox_id>/audit", {200: AuditAnswer}, raises=raises.KNOWN)
def audit_sandbox(call: Call, sandbox_id: str, query: NoQuery) -> Response:
    """Show a sandbox's lifecycle over its generations."""
    return answer(AuditAnswer.model_validate(call.services.sandboxes.audit(call.sandbox(sandbox_id))))
