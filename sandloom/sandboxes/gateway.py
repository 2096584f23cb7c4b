"""Lifecycle calls that need the owner's answer: the rows move first, then the worker is asked."""

from __future__ import annotations

from sandloom.contracts.ports import WorkerControl
from sandloom.errors import SandloomError
from sandloom.ids import SandboxKey
from sandloom.sandboxes.records import Route
from sandloom.sandboxes.service import Sandboxes
from sandloom.sandboxes.states import SandboxStatus

CONNECT_TIMEOUT_SECONDS = 30.0
RELEASE_WAIT_SECONDS = 20.0


class SandboxGateway:
    """What the API calls for connect and release."""

    def __init__(self, sandboxes: Sandboxes, control: WorkerControl) -> None:
        self._sandboxes = sandboxes
        self._control = control

    def connect(self, key: SandboxKey, generation: int) -> Route:
        """The route once the workspace is ready on its worker; idempotent."""
        route = self._sandboxes.current(key, generation)
        if route.status is not SandboxStatus.ASSIGNED:
            return route
        arguments = {"sandbox_id": key.sandbox_id, "generation": generation}
        self._control.call(
            route.queue, "sandloom.connect", key.tenant_id, arguments, timeout_seconds=CONNECT_TIMEOUT_SECONDS
        )
        return self._sandboxes.current(key, generation)

    def release(self, key: SandboxKey, generation: int | None, by: str, reason: str = "released") -> Route:
        """RELEASED, or RELEASING when the owner did not finish in time: maintenance goes on with it."""
        route = self._sandboxes.begin_release(key, generation, by, reason)
        if route.status is SandboxStatus.RELEASED:
            return route
        arguments = {"sandbox_id": key.sandbox_id, "generation": route.generation}
        try:
            self._control.call(
                route.queue, "sandloom.release", key.tenant_id, arguments, timeout_seconds=RELEASE_WAIT_SECONDS
            )
        except SandloomError:
            # The row says RELEASING, whatever became of the message; it is asked for again until it is done.
            return self._sandboxes.get(key)
        return self._sandboxes.get(key)
