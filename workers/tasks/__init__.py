"""The tasks of a worker: what they are called, where they run, how they are added to an application."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sandloom.errors import SandloomError
from workers.app import WorkerApp, task_options
from workers.context import NodeContext
from workers.direct import DirectExecs
from workers.maintenance import Maintenance
from workers.reception import EXEC_TASK, Lane
from workers.self_ping import PING_TASK, SelfPing
from workers.tasks import execs, files, health, sandboxes, searches, templates  # noqa: F401 - they declare their tasks
from workers.tasks.requests import OF_FLEET, PUBLIC, PublicTask, carry_out

MAINTENANCE_TASKS = ("reclaim", "ring_again", "prune")


def maintenance_lanes() -> dict[str, Lane]:
    return {f"sandloom.maintenance.{name}": Lane.LIFECYCLE for name in MAINTENANCE_TASKS}


def node_lanes() -> dict[str, Lane]:
    """The control lane of every task that a node takes, the doorbell aside."""
    return {
        **maintenance_lanes(),
        **{name: task.lane for name, task in (PUBLIC | OF_FLEET).items()},
        EXEC_TASK: Lane.LIFECYCLE,
    }


def register_maintenance(app: WorkerApp, maintenance: Maintenance) -> None:
    steps = {"reclaim": maintenance.reclaim, "ring_again": maintenance.ring_again, "prune": maintenance.prune}
    for name, step in steps.items():
        _declare(app, _without_arguments(step), name=f"sandloom.maintenance.{name}", ignore_result=True)


def register_node(app: WorkerApp, node: NodeContext, direct: DirectExecs) -> None:
    @app.task(name=EXEC_TASK, bind=True, throws=(SandloomError,), **task_options(track_started=True))
    def run_exec(self: Any, envelope: Mapping[str, Any]) -> dict[str, Any]:
        return direct.carry_out(self.request.id)

    for task in (PUBLIC | OF_FLEET).values():
        _declare(app, _public(node, task), name=task.name, throws=(SandloomError,))


def register_ping(app: WorkerApp, ping: SelfPing) -> None:
    def hear(*_: Any, **kwargs: Any) -> None:
        ping.heard(kwargs.get("token"))

    _declare(app, hear, name=PING_TASK, ignore_result=True)


def _declare(app: WorkerApp, function: Any, **options: Any) -> None:
    declare: Any = app.task
    declare(**task_options(**options))(function)


def _public(node: NodeContext, task: PublicTask) -> Any:
    def run(**kwargs: Any) -> dict[str, Any] | None:
        return carry_out(node, task, kwargs)

    return run


def _without_arguments(step: Any) -> Any:
    def run() -> None:
        step()

    return run
