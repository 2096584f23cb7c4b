"""The end of a sandbox on this node: its commands, its processes, its files; then its uid is free again."""

from __future__ import annotations

from dataclasses import replace

from sandloom.clock import monotonic_seconds
from sandloom.errors import SandboxBusy, StaleRoute, WorkspaceFailed
from sandloom.execs.records import Outcome
from sandloom.execs.service import Execs
from sandloom.execs.states import ExecStatus, Reason
from sandloom.execution.workspace import WorkspaceFault, WorkspaceRoot
from sandloom.ids import SandboxKey
from sandloom.sandboxes.records import Route
from sandloom.sandboxes.service import Sandboxes
from sandloom.sandboxes.states import SandboxStatus
from sandloom.telemetry import get_logger
from workers.commands import Commands, end_each
from workers.gates import Gates
from workers.homes import Homes
from workers.identity import Identity
from workers.translate import Ending

log = get_logger("sandloom.workers.lifecycle")

#: Beyond the grace between TERM and KILL.
END_MARGIN_SECONDS = 10.0
_RELEASED = Outcome(ExecStatus.CANCELLED, Reason.CANCELLED.value, detail="the sandbox was released")


class Lifecycle:
    """Releases. Every step can be repeated, so a release that was cut short is simply called again."""

    def __init__(
        self,
        identity: Identity,
        root: WorkspaceRoot,
        sandboxes: Sandboxes,
        execs: Execs,
        commands: Commands,
        homes: Homes,
        gates: Gates,
        terminate_grace_seconds: float,
    ) -> None:
        self._identity = identity
        self._root = root
        self._sandboxes = sandboxes
        self._execs = execs
        self._commands = commands
        self._homes = homes
        self._gates = gates
        self._end_seconds = terminate_grace_seconds + END_MARGIN_SECONDS

    def release(self, key: SandboxKey, generation: int) -> Route:
        """RELEASING to RELEASED. Raises StaleRoute unless the sandbox is being released by this very owner."""
        with self._gates.exclusive(key):
            route = self._sandboxes.get(key)
            if route.generation != generation or not self._identity.owns(route):
                raise StaleRoute
            if route.status is SandboxStatus.RELEASED:
                return route
            if route.status is not SandboxStatus.RELEASING:
                raise StaleRoute("The sandbox is not being released.")
            self._end_commands(key)
            self._remove(route)
            if self._sandboxes.finish_release(route.fence):
                return replace(route, status=SandboxStatus.RELEASED)
            return self._sandboxes.get(key)

    def _end_commands(self, key: SandboxKey) -> None:
        """Nothing of the sandbox can start any more: claims need a sandbox that is RUNNING."""
        running = self._commands.of_sandbox(key)
        end_each(running, Ending.RELEASED)
        until = monotonic_seconds() + self._end_seconds
        if not all(command.done.wait(max(0.0, until - monotonic_seconds())) for command in running):
            raise SandboxBusy("The sandbox's commands have not ended yet; repeat the call.")
        identity = self._identity
        for exec_key in self._execs.queued_of(key, identity.worker_id):
            self._execs.refuse(exec_key, identity.worker_id, identity.epoch, _RELEASED)

    def _remove(self, route: Route) -> None:
        self._homes.forget(route.key)
        self._commands.clear(route.key, route.sandbox_uid)
        try:
            self._root.delete(route.key)
        except WorkspaceFault as fault:
            log.error("workspace cannot be removed", sandbox_id=route.key.sandbox_id, reason=str(fault))
            raise WorkspaceFailed from fault
