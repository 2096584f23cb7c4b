"""Commands as the API sees them: admit and ring, or cancel and tell."""

from __future__ import annotations

from sandloom.contracts.ports import Bus, Publisher, WorkerControl
from sandloom.errors import SandboxNotReady
from sandloom.execs.records import CancelResult, Exec, ExecRequest
from sandloom.execs.service import Execs
from sandloom.ids import ExecKey, SandboxKey
from sandloom.sandboxes.gateway import SandboxGateway
from sandloom.sandboxes.service import Sandboxes

CANCEL_TTL_SECONDS = 60.0


class ExecGateway:
    """The exec routes' only collaborator."""

    def __init__(
        self,
        execs: Execs,
        sandboxes: Sandboxes,
        gateway: SandboxGateway,
        publisher: Publisher,
        control: WorkerControl,
        bus: Bus,
    ) -> None:
        self._execs = execs
        self._sandboxes = sandboxes
        self._gateway = gateway
        self._publisher = publisher
        self._control = control
        self._bus = bus

    def start(self, key: SandboxKey, generation: int, request: ExecRequest) -> tuple[Exec, bool]:
        """Admit and ring; a sandbox that is only ASSIGNED is made ready first. The bool says whether it is new."""
        try:
            admitted, route, created = self._execs.admit(key, generation, request)
        except SandboxNotReady:
            self._gateway.connect(key, generation)
            admitted, route, created = self._execs.admit(key, generation, request)
        if created:
            self._publisher.ring(route.queue, admitted.key, admitted.generation)
        return admitted, created

    def cancel(self, key: ExecKey, generation: int | None) -> CancelResult:
        """Cancel and, when the command runs, tell its worker. A lost message is made up for by the worker's sweep."""
        result = self._execs.cancel(key, generation)
        if result.ring_worker:
            route = self._sandboxes.get(key.sandbox)
            arguments = {"sandbox_id": key.sandbox_id, "exec_id": key.exec_id}
            self._control.post(route.queue, "sandloom.cancel", key.tenant_id, arguments, ttl_seconds=CANCEL_TTL_SECONDS)
        elif result.cancelled:
            self._bus.publish_head(key, result.exec.last_seq, True)
        return result
