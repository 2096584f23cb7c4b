"""Whether this process answers, and how the deployment is."""

from __future__ import annotations

from flask import Response

from api.answers import answer
from api.fleet_view import Health, health
from api.operations import Call, Group

group = Group("health", "Operation", prefix="")


@group.operation("GET", "/health", {200: "text/plain"})
def liveness(call: Call) -> Response:
    """Answer `ok` while the process serves."""
    return Response("ok", content_type="text/plain; charset=utf-8")


@group.operation("GET", "/healthz", {200: Health})
def health_status(call: Call) -> Response:
    """Show the deployment's parts and its least loaded live worker."""
    return answer(health(call.services))
