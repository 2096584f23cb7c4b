"""What the fleet has and does."""

from __future__ import annotations

from flask import Response

from api.answers import answer
from api.fleet_view import Runtime, runtime
from api.operations import Call, Group
from api.queries import NoQuery

group = Group("diagnostics", "Operation")


@group.operation("GET", "/sandboxes/diagnostics/runtime", {200: Runtime}, operators_only=True)
def runtime_diagnostics(call: Call, query: NoQuery) -> Response:
    """Show the workers, their capacity and the queue."""
    return answer(runtime(call.services))
