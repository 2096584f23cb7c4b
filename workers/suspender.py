"""A sandbox goes to sleep on this node and wakes up again: it gives its slot back and keeps its files and its uid."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress

from sandloom.errors import (
    NoWorkerAvailable,
    ObjectStoreUnavailable,
    SnapshotUnavailable,
    StaleGeneration,
    SuspendBusy,
)  # fmt: skip
from sandloom.execution.workspace import WorkspaceRoot
from sandloom.ids import SandboxKey
from sandloom.sandboxes.loose import LooseSnapshots
from sandloom.sandboxes.records import Route
from sandloom.sandboxes.service import Sandboxes
from sandloom.sandboxes.states import SandboxStatus
from sandloom.sandboxes.suspension import Suspensions
from sandloom.settings import Settings
from sandloom.telemetry import get_logger
from workers.announced import announced
from workers.commands import Commands
from workers.gates import Gates
from workers.homes import Homes
from workers.identity import Identity
from workers.snapshots import Snapshots, new_token

log = get_logger("sandloom.workers.suspender")


class Suspender:
    """``suspend`` can be repeated: one that was cut short goes on where it is found."""

    def __init__(
        self,
        identity: Identity,
        sandboxes: Sandboxes,
        suspensions: Suspensions,
        loose: LooseSnapshots,
        commands: Commands,
        homes: Homes,
        gates: Gates,
        root: WorkspaceRoot,
        snapshots: Snapshots | None,
        settings: Settings,
    ) -> None:
        self._identity = identity
        self._sandboxes = sandboxes
        self._suspensions = suspensions
        self._loose = loose
        self._commands = commands
        self._homes = homes
        self._gates = gates
        self._root = root
        self._snapshots = snapshots
        self._settings = settings
        self._relieving = threading.Lock()

    def suspend(
        self, key: SandboxKey, generation: int, idle_since_us: int | None = None, *, away: bool = False
    ) -> tuple[Route, bool]:
        """READY to SUSPENDED, and True; the route as it is, and False, when it was SUSPENDED already.

        ``idle_since_us``: only unless it was used after that. ``away``: only if others can wake it without this worker.
        Raises SuspendBusy, SandboxNotReady, StaleGeneration, and what the object store says.
        """
        if self._snapshots is None and self._needs_snapshot(away):
            raise SnapshotUnavailable
        with self._gates.alone(key):
            route = self._sandboxes.get(key)
            if route.generation != generation:
                raise StaleGeneration
            if route.status is not SandboxStatus.SUSPENDED and not self._identity.owns(route):
                raise StaleGeneration("The sandbox has another owner; resolve it again.")
            if not self._suspensions.begin(route.fence, idle_since_us):
                return route, False
            try:
                # Nothing of it can start any more; what a command left behind ends here.
                self._commands.clear(key, route.sandbox_uid)
                snapshot = self._snapshot(route, away)
            except BaseException:
                self._suspensions.abort(route.fence)
                raise
            if not self._suspensions.finish(route.fence, snapshot):
                self._forget(key, snapshot)
                raise StaleGeneration
            self._homes.forget(key)
        return self._sandboxes.get(key), True

    def _needs_snapshot(self, away: bool) -> bool:
        return self._settings.suspend_snapshot == "always" or (away and not self._settings.shared_root)

    def _snapshot(self, route: Route, away: bool) -> str | None:
        """The name of a snapshot, None where none is wanted, or where one is only wished for and cannot be kept now."""
        policy = self._settings.suspend_snapshot
        if self._snapshots is None or policy == "never" or (policy == "auto" and self._settings.shared_root):
            return None
        token = new_token()
        try:
            if route.snapshot is not None:  # of its last sleep; nothing else knows the name
                self._snapshots.discard(route.key, route.snapshot)
            if not self._suspensions.announce(route.fence, token):
                raise StaleGeneration
            return self._snapshots.save(route.key, token=token)
        except ObjectStoreUnavailable as error:
            if self._needs_snapshot(away):
                raise
            log.warning("suspended without a snapshot", sandbox_id=route.key.sandbox_id, reason=error.detail)
            return None

    def _forget(self, key: SandboxKey, snapshot: str | None) -> None:
        """Somebody else has the sandbox by now, and may have looked for this before it was whole."""
        if self._snapshots is not None and snapshot is not None and self._sandboxes.get(key).snapshot != snapshot:
            with suppress(ObjectStoreUnavailable):
                self._snapshots.discard(key, snapshot)

    @property
    def can_send_away(self) -> bool:
        """Whether sandboxes of this worker can be woken without it."""
        wanted = self._snapshots is not None and self._settings.suspend_snapshot != "never"
        return wanted or self._settings.shared_root is not None

    def send_away(self, key: SandboxKey) -> None:
        """A sandbox that sleeps on this worker's own disk is only in the object store afterwards.

        Raises SnapshotUnavailable, SnapshotFailed, ObjectStoreUnavailable; SuspendBusy when it does not sleep any more.
        """
        if self._snapshots is None or not self.can_send_away:
            raise SnapshotUnavailable
        # Under the gate nobody makes it ready here, and nobody else can: what is archived stays what it is.
        with self._gates.exclusive(key):
            route = self._sandboxes.get(key)
            if route.snapshot is None and route.status is SandboxStatus.SUSPENDED:
                with announced(self._loose, self._snapshots, key) as token:
                    if not self._suspensions.keep(route.fence, self._snapshots.save(key, token=token)):
                        raise SuspendBusy
                route = self._sandboxes.get(key)
        if route.snapshot is None or not self._drop(route):
            raise SuspendBusy

    def relieve_by(self, submit: Callable[[Callable[[], None]], object]) -> None:
        """Have ``relieve`` done elsewhere when the disk is full and there is something to drop; once at a time."""
        if self._snapshots is None or self._relieving.locked() or not self._is_full():
            return

        def job() -> None:
            if self._relieving.acquire(blocking=False):
                try:
                    self.relieve()
                finally:
                    self._relieving.release()

        submit(job)

    def relieve(self) -> int:
        """Under disk pressure: removes local copies of what the object store has too, the longest asleep first, until
        there is room. Returns how many went."""
        dropped = 0
        while self._is_full():
            copies = self._suspensions.copies(self._identity.worker_id)
            before = dropped
            for route in copies:
                if self._is_full():
                    dropped += self._drop(route)
            if dropped == before:
                break
        return dropped

    def _is_full(self) -> bool:
        space, settings = self._root.space(), self._settings
        used_percent = 100 * (1 - space.free_bytes / max(1, space.total_bytes))
        return used_percent >= settings.disk_high_watermark_percent or space.free_bytes < settings.min_free_bytes

    def _drop(self, route: Route) -> bool:
        """Only once the snapshot was seen in the store. The row goes first: then nobody wakes the sandbox with files
        that are about to go."""
        assert self._snapshots is not None
        assert route.snapshot is not None
        with self._gates.exclusive(route.key):
            now = self._sandboxes.get(route.key)
            if (now.status, now.snapshot, now.generation) != (route.status, route.snapshot, route.generation):
                return False
            if not self._snapshots.is_there(route.key, route.snapshot):
                log.error("a snapshot is missing; the local copy stays", sandbox_id=route.key.sandbox_id)
                return False
            if not self._suspensions.drop_copy(route.fence, route.snapshot):
                return False
            self._root.delete(route.key)
        log.info("local copy dropped", sandbox_id=route.key.sandbox_id)
        return True

    def resume(self, key: SandboxKey, by: str) -> tuple[Route, bool]:
        """Awake, and whether this call woke it. On another worker it is ASSIGNED then: its next call makes it ready.

        A worker that is full gives up its copy of what the object store has, when another one can restore it.

        Raises as ``Suspensions.begin_resume`` and ``Homes.connect`` do.
        """
        try:
            route, resumed = self._suspensions.begin_resume(key, by)
        except NoWorkerAvailable:
            if not self._make_way(key):
                raise
            route, resumed = self._suspensions.begin_resume(key, by)
        if resumed and self._identity.owns(route):
            route = self._homes.connect(key, route.generation)
        return route, resumed

    def _make_way(self, key: SandboxKey) -> bool:
        route = self._sandboxes.get(key)
        if self._snapshots is None or route.worker_id != self._identity.worker_id or not route.has_spare_copy:
            return False
        return bool(self._suspensions.takers(route.profile_id)) and self._drop(route)
