"""A sandbox goes to sleep on this node and wakes up again: it gives its slot back and keeps its files and its uid."""

from __future__ import annotations

from sandloom.errors import SnapshotUnavailable, StaleGeneration
from sandloom.ids import SandboxKey
from sandloom.sandboxes.records import Route
from sandloom.sandboxes.service import Sandboxes
from sandloom.sandboxes.states import SandboxStatus
from sandloom.sandboxes.suspension import Suspensions
from workers.commands import Commands
from workers.gates import Gates
from workers.homes import Homes
from workers.identity import Identity


class Suspender:
    """``suspend`` can be repeated: one that was cut short goes on where it is found."""

    def __init__(
        self,
        identity: Identity,
        sandboxes: Sandboxes,
        suspensions: Suspensions,
        commands: Commands,
        homes: Homes,
        gates: Gates,
        snapshot_policy: str,
    ) -> None:
        self._identity = identity
        self._sandboxes = sandboxes
        self._suspensions = suspensions
        self._commands = commands
        self._homes = homes
        self._gates = gates
        self._snapshot_policy = snapshot_policy

    def suspend(self, key: SandboxKey, generation: int, idle_since_us: int | None = None) -> tuple[Route, bool]:
        """READY to SUSPENDED, and True; the route as it is, and False, when it was SUSPENDED already.

        ``idle_since_us``: only unless it was used after that. Raises SuspendBusy, SandboxNotReady, StaleGeneration.
        """
        if self._snapshot_policy == "always":
            raise SnapshotUnavailable
        with self._gates.alone(key):
            route = self._sandboxes.get(key)
            if route.generation != generation:
                raise StaleGeneration
            if route.status is not SandboxStatus.SUSPENDED and not self._identity.owns(route):
                raise StaleGeneration("The sandbox has another owner; resolve it again.")
            if not self._suspensions.begin(route.fence, idle_since_us):
                return route, False
            # Nothing of it can start any more; what a command left behind ends here.
            self._commands.clear(key, route.sandbox_uid)
            if not self._suspensions.finish(route.fence):
                raise StaleGeneration
            self._homes.forget(key)
        return self._sandboxes.get(key), True

    def resume(self, key: SandboxKey, by: str) -> tuple[Route, bool]:
        """Awake, and whether this call woke it. On another worker it is ASSIGNED then: its next call makes it ready.

        Raises as ``Suspensions.begin_resume`` and ``Homes.connect`` do.
        """
        route, resumed = self._suspensions.begin_resume(key, by)
        if resumed and self._identity.owns(route):
            route = self._homes.connect(key, route.generation)
        return route, resumed
