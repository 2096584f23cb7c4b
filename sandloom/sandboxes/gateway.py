"""Lifecycle calls that need the owner's answer: the rows move first, then the worker is asked."""

from __future__ import annotations

from typing import Any

from sandloom.contracts.ports import WorkerControl
from sandloom.errors import NoWorkerAvailable, SandboxSuspended, SandloomError, StaleGeneration, StaleRoute
from sandloom.ids import SandboxKey
from sandloom.sandboxes.fork_rules import ForkWay, fork_way
from sandloom.sandboxes.records import Route
from sandloom.sandboxes.service import Sandboxes
from sandloom.sandboxes.states import SandboxStatus
from sandloom.sandboxes.suspension import Suspensions

CONNECT_TIMEOUT_SECONDS = 30.0
RELEASE_WAIT_SECONDS = 20.0
SUSPEND_TIMEOUT_SECONDS = 240.0
RESUME_TIMEOUT_SECONDS = 240.0
FORK_TIMEOUT_SECONDS = 240.0


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
        arguments = {"generation": generation}
        answer = self._ask(route.queue, "sandloom.suspend", key, arguments, SUSPEND_TIMEOUT_SECONDS)
        return self._sandboxes.get(key), bool(answer.get("suspended"))

    def resume(self, key: SandboxKey, by: str) -> tuple[Route, bool]:
        """The route, READY when this call woke it, and whether it did. A resume that fails goes back to SUSPENDED.

        An owner that is full is asked to give up its copy, where the object store has one and another worker a slot.
        """
        try:
            route, resumed = self._suspensions.begin_resume(key, by)
        except NoWorkerAvailable:
            route = self._sandboxes.get(key)
            if not route.has_spare_copy or not self._suspensions.takers(route.profile_id):
                raise
            answer = self._ask(route.queue, "sandloom.resume", key, {}, RESUME_TIMEOUT_SECONDS)
            route, resumed = self._sandboxes.get(key), bool(answer.get("resumed"))
        if resumed and route.status is SandboxStatus.ASSIGNED:
            route = self._connect(route, RESUME_TIMEOUT_SECONDS)
        return route, resumed

    def fork(self, key: SandboxKey, generation: int, copy_id: str, scope: str) -> Route:
        """The route of the copy, READY. Raises as ``fork_way``, ``Forks`` and ``Suspensions.begin_resume`` do, and what
        its worker says; then there is no copy."""
        source = self._sandboxes.get(key)
        if fork_way(source, generation) is ForkWay.FILES:
            queue = self._sandboxes.current(key, generation).queue
        else:
            queue = next(iter(self._suspensions.takers(source.profile_id)), "")
            if not queue:
                raise NoWorkerAvailable.of(source.profile_id)
        arguments = {"generation": generation, "copy_id": copy_id, "workspace_scope_id": scope}
        answer = self._ask(queue, "sandloom.fork", key, arguments, FORK_TIMEOUT_SECONDS)
        copy = self._sandboxes.current(SandboxKey(key.tenant_id, copy_id), answer["generation"])
        return self._connect(copy, RESUME_TIMEOUT_SECONDS) if copy.status is SandboxStatus.ASSIGNED else copy

    def connect(self, key: SandboxKey, generation: int) -> Route:
        """The route once the workspace is ready on its worker; idempotent."""
        route = self._sandboxes.current(key, generation)
        if route.status is not SandboxStatus.ASSIGNED:
            return route
        return self._connect(route, CONNECT_TIMEOUT_SECONDS)

    def _connect(self, route: Route, timeout_seconds: float) -> Route:
        arguments = {"generation": route.generation}
        self._ask(route.queue, "sandloom.connect", route.key, arguments, timeout_seconds)
        return self._sandboxes.current(route.key, route.generation)

    def release(self, key: SandboxKey, generation: int | None, by: str, reason: str = "released") -> Route:
        """RELEASED, or RELEASING when the owner did not finish in time: maintenance goes on with it."""
        route = self._sandboxes.begin_release(key, generation, by, reason)
        if route.status is SandboxStatus.RELEASED:
            return route
        try:
            arguments = {"generation": route.generation}
            self._ask(route.queue, "sandloom.release", key, arguments, RELEASE_WAIT_SECONDS)
        except SandloomError:
            # The row says RELEASING, whatever became of the message; it is asked for again until it is done.
            return self._sandboxes.get(key)
        return self._sandboxes.get(key)

    def _ask(
        self, queue: str, task: str, key: SandboxKey, arguments: dict[str, Any], timeout_seconds: float
    ) -> dict[str, Any]:
        named = {"sandbox_id": key.sandbox_id, **arguments}
        return self._control.call(queue, task, key.tenant_id, named, timeout_seconds=timeout_seconds)
