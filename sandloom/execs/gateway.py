"""Commands as the API sees them: admit, ring, wait."""

from __future__ import annotations

from sandloom.clock import monotonic_seconds
from sandloom.contracts.ports import Bus, Publisher, Watch, WorkerControl
from sandloom.errors import SandboxNotReady
from sandloom.execs.records import CancelResult, Exec, ExecRequest
from sandloom.execs.service import Execs
from sandloom.ids import ExecKey, SandboxKey
from sandloom.sandboxes.gateway import SandboxGateway
from sandloom.sandboxes.service import Sandboxes

#: The bus loses messages, so a waiter looks at the row from time to time as well.
REREAD_SECONDS = 5.0
REREAD_WITHOUT_BUS_SECONDS = 0.5
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

    def run(self, key: SandboxKey, generation: int, request: ExecRequest, timeout_seconds: float) -> Exec:
        """Start and wait: the terminal exec with its output, or the exec so far when the time is up."""
        exec_key = ExecKey(*key, request.exec_id)
        # Watching begins before the doorbell, so that the end of a fast command is not missed.
        with self._bus.watch(exec_key) as watch:
            admitted, _ = self.start(key, generation, request)
            if admitted.terminal:
                return self._execs.get(exec_key, output=True)
            return self._wait(exec_key, watch, timeout_seconds, look_first=False)

    def wait(self, key: ExecKey, timeout_seconds: float) -> Exec:
        """The terminal exec with its output, or the exec so far when the time is up. Raises ExecNotFound."""
        if timeout_seconds <= 0:
            return self._execs.get(key, output=True)
        with self._bus.watch(key) as watch:
            return self._wait(key, watch, timeout_seconds, look_first=True)

    def _wait(self, key: ExecKey, watch: Watch, timeout_seconds: float, *, look_first: bool) -> Exec:
        deadline = monotonic_seconds() + timeout_seconds
        if look_first:
            found = self._execs.get(key, output=True)
            if found.terminal:
                return found
        while True:
            reread = REREAD_SECONDS if self._bus.connected else REREAD_WITHOUT_BUS_SECONDS
            remaining = deadline - monotonic_seconds()
            head = watch.wait(max(0.0, min(reread, remaining)))
            over = monotonic_seconds() >= deadline
            if head is not None and not head.terminal and not over:
                continue
            found = self._execs.get(key, output=True)
            if found.terminal or over:
                return found

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
