"""A worker about itself, asked by an operator through the API."""

from __future__ import annotations

from typing import Any

from sandloom.contracts.rest import EmptyBody
from sandloom.errors import WorkerNotFound
from sandloom.fleet.records import WorkerStatus
from workers.reception import Lane
from workers.tasks.requests import OF_FLEET, Call, public


@public("sandloom.health", Lane.URGENT, EmptyBody, OF_FLEET)
def health(call: Call[EmptyBody]) -> dict[str, Any]:
    """What its row says it has, and what it measures now."""
    node = call.node
    worker = node.fleet.get(node.identity.worker_id)
    if worker is None:
        raise WorkerNotFound
    return {
        "status": "DRAINING" if worker.status is WorkerStatus.DRAINING else "UP",
        "worker_id": node.identity.worker_id,
        "worker_epoch": node.identity.epoch,
        "capacity": worker.capacity,
        "running_sessions": worker.reserved,
        "running_execs": len(node.commands.all()),
        "disk": node.load()["disk"],
    }
