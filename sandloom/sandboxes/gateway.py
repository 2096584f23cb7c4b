"""Lifecycle calls that need the owner's answer: the rows move first, then the worker is asked."""

from __future__ import annotations

from sandloom.contracts.ports import WorkerControl
from sandloom.errors import SandboxSuspended, SandloomError, StaleGeneration, StaleRoute
from sandloom.ids import SandboxKey
from sandloom.sandboxes.records import Route
from sandloom.sandboxes.service import Sandboxes
from sandloom.sandboxes.states import SandboxStatus
from sandloom.sandboxes.suspension import Suspensions

CONNECT_TIMEOUT_SECONDS = 30.0
RELEASE_WAIT_SECONDS = 20.0
SUSPEND_TIMEOUT_SECONDS = 240.0
RESUME_TIMEOUT_SECONDS = 240.0


class SandboxGateway:
    """What the API calls from resolve to release."""

    def __init__(self, sandboxes: Sandboxes, suspensions: Suspensions, control: WorkerControl) -> None:
        self._sandboxes = sandboxes
        self._suspensions = suspensions
        self._control = control

    def resolve(self, tenant_id: str, sandbox_id: str, workspace_scope_id: str, profile_id: str, by: str) -> Route:
        """As ``Sandboxes.resolve``; a suspended sandbox is woken."""
        try:
            return self._sandboxes.resolve(tenant_id, sandbox_id, workspace_scope_id, profile_id, by)
        except SandboxSuspended:
            return self.resume(SandboxKey(tenant_id, sandbox_id), by)[0]

    def suspend(self, key: SandboxKey, generation: int) -> tuple[Route, bool]:
        """The route, and whether this call suspended it; False: it was before. Raises what the owner says, and
        StaleGeneration."""
        try:
            route = self._sandboxes.current(key, generation)
        except SandboxSuspended:
            return self._sandboxes.get(key), False
        except StaleRoute as error:
            raise StaleGeneration(error.detail) from None
        arguments = {"sandbox_id": key.sandbox_id, "generation": generation}
        answer = self._control.call(
            route.queue, "sandloom.suspend", key.tenant_id, arguments, timeout_seconds=SUSPEND_TIMEOUT_SECONDS
        )
        return self._sandboxes.get(key), bool(answer.get("suspended"))

    def resume(self, key: SandboxKey, by: str) -> tuple[Route, bool]:
        """The route, READY when this call woke it, and whether it did. A resume that fails goes back to SUSPENDED."""
        route, resumed = self._suspensions.begin_resume(key, by)
        if resumed:
            route = self._connect(route, RESUME_TIMEOUT_SECONDS)
        return route, resumed

    def connect(self, key: SandboxKey, generation: int) -> Route:
        """The route once the workspace is ready on its worker; idempotent."""
        route = self._sandboxes.current(key, generation)
        if route.status is not SandboxStatus.ASSIGNED:
            return route
        return self._connect(route, CONNECT_TIMEOUT_SECONDS)

    def _connect(self, route: Route, timeout_seconds: float) -> Route:
        arguments = {"sandbox_id": route.key.sandbox_id, "generation": route.generation}
        self._control.call(
            route.queue, "sandloom.connect", route.key.tenant_id, arguments, timeout_seconds=timeout_seconds
        )
        return self._sandboxes.current(route.key, route.generation)

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
