"""What operators do with single workers."""

from __future__ import annotations

from flask import Response

from api import raises
from api.answers import answer
from api.fleet_view import WorkerRow, WorkerState, worker_row
from api.operations import Call, Group
from api.queries import NoQuery
from sandloom.contracts.rest import EmptyBody
from sandloom.errors import WorkerLost, WorkerNotFound
from sandloom.ids import DEFAULT_TENANT

group = Group("workers", "Operation")

HEALTH_TIMEOUT_SECONDS = 5.0


@group.operation(
    "POST", "/admin/workers/<worker_id>/drain", {200: WorkerRow}, raises=raises.ON_WORKER, operators_only=True
)
def drain_worker(call: Call, worker_id: str, query: NoQuery, body: EmptyBody | None = None) -> Response:
    """Empty a worker: no new sandboxes, commands finish, quiet sandboxes move out."""
    return answer(worker_row(call.services, call.services.fleet.drain(worker_id)))


@group.operation(
    "POST", "/admin/workers/<worker_id>/undrain", {200: WorkerRow}, raises=raises.ON_WORKER, operators_only=True
)
def undrain_worker(call: Call, worker_id: str, query: NoQuery, body: EmptyBody | None = None) -> Response:
    """Let a worker take sandboxes again."""
    return answer(worker_row(call.services, call.services.fleet.undrain(worker_id)))


@group.operation(
    "GET", "/admin/workers/<worker_id>/health", {200: WorkerState}, raises=raises.ASKED_WORKER, operators_only=True
)
def worker_health(call: Call, worker_id: str, query: NoQuery) -> Response:
    """Ask a worker itself how it is."""
    worker = call.services.fleet.get(worker_id)
    if worker is None:
        raise WorkerNotFound
    if not worker.live:
        raise WorkerLost("The worker holds no lease.")
    state = call.services.control.call(
        worker.queue, "sandloom.health", DEFAULT_TENANT, {}, timeout_seconds=HEALTH_TIMEOUT_SECONDS
    )
    return answer(WorkerState.model_validate(state))
