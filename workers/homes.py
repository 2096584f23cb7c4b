"""What sandboxes own on this node's disk, and as which user."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

from sandloom.errors import SandloomError, SnapshotUnavailable, StaleRoute, WorkspaceFailed
from sandloom.execution.directories import Directories
from sandloom.execution.disk import Room
from sandloom.execution.file_faults import FileFault
from sandloom.execution.files import FileLimits, SandboxFiles
from sandloom.execution.workspace import WorkspaceFault, WorkspaceRoot
from sandloom.ids import SandboxKey
from sandloom.sandboxes.records import Route
from sandloom.sandboxes.service import Sandboxes
from sandloom.sandboxes.states import SandboxStatus, Workspace
from sandloom.sandboxes.suspension import Suspensions
from sandloom.telemetry import get_logger
from workers.gates import Gates
from workers.identity import Identity
from workers.snapshots import Snapshots
from workers.templates import Templates
from workers.translate import Home, file_error

log = get_logger("sandloom.workers.homes")


@dataclass(frozen=True, slots=True)
class _Known:
    """One object per generation, since the locks of paths live in ``files``."""

    generation: int
    home: Home
    files: SandboxFiles


class Homes:
    """Makes workspaces ready and remembers where they are, per generation."""

    def __init__(
        self,
        identity: Identity,
        root: WorkspaceRoot,
        sandboxes: Sandboxes,
        suspensions: Suspensions,
        gates: Gates,
        limits: FileLimits,
        room_of: Callable[[SandboxKey, Directories, int], Room],
        templates: Templates,
        snapshots: Snapshots | None,
    ) -> None:
        self._identity = identity
        self._root = root
        self._sandboxes = sandboxes
        self._suspensions = suspensions
        self._gates = gates
        self._limits = limits
        self._room_of = room_of
        self._templates = templates
        self._snapshots = snapshots
        self._known: dict[SandboxKey, _Known] = {}
        self._lock = threading.Lock()

    def connect(self, key: SandboxKey, generation: int) -> Route:
        """The workspace made ready. Idempotent. Raises StaleRoute, DiskFull, WorkspaceFailed; a resume that fails goes
        back to sleep."""
        with self._gates.exclusive(key):
            route = self._owned(key, generation)
            if route.status is not SandboxStatus.ASSIGNED and self._cached(key, generation) is not None:
                return route
            try:
                workspace = self._provision(route)
            except SandloomError:
                self._suspensions.fall_back(route.fence)
                raise
            return self._sandboxes.mark_ready(route.fence, workspace)

    @contextmanager
    def files(self, key: SandboxKey, generation: int) -> Iterator[SandboxFiles]:
        """The sandbox's files, with the sandbox kept from being released meanwhile. Raises as ``home`` does; a sandbox
        that is only assigned is made ready first."""
        known = self._ready(key, generation)
        with self._gates.shared(key):
            yield known.files

    def home(self, key: SandboxKey, generation: int) -> Home:
        """Where the sandbox lives; one that is only assigned is made ready first. Raises as ``connect`` does."""
        return self._ready(key, generation).home

    def _ready(self, key: SandboxKey, generation: int) -> _Known:
        known = self._cached(key, generation)
        if known is None:
            self.connect(key, generation)
            known = self._cached(key, generation)
        if known is None:
            raise StaleRoute
        return known

    def forget(self, key: SandboxKey) -> None:
        with self._lock:
            self._known.pop(key, None)
        self._templates.forget(key)

    @contextmanager
    def alone(self, key: SandboxKey, generation: int) -> Iterator[Home]:
        """Inside, no command runs and no file call begins; nobody else is kept waiting. Raises as ``home`` does, and
        SandboxBusy; StaleRoute at the end when the sandbox has moved on meanwhile."""
        home = self.home(key, generation)
        fence = self._identity.fence(key, generation)
        self._sandboxes.hold(fence)
        try:
            with self._gates.exclusive(key):
                pass  # the file calls that had begun are over
            yield home
        finally:
            held = self._sandboxes.let_go(fence)
        if not held:
            raise StaleRoute

    def change_templates(self, key: SandboxKey, generation: int, attached: Mapping[str, str]) -> None:
        """What later commands have mounted. Raises FileFault, StaleRoute."""
        known = self._cached(key, generation)
        if known is None:
            raise StaleRoute
        mounted = self._templates.mount(key, known.home, attached)
        with self._lock:
            if self._known.get(key) is known:
                home = replace(known.home, templates=mounted)
                self._known[key] = _Known(generation, home, known.files)

    def _owned(self, key: SandboxKey, generation: int) -> Route:
        route = self._sandboxes.current(key, generation)
        if not self._identity.owns(route):
            raise StaleRoute
        return route

    def _provision(self, route: Route) -> str | None:
        """Make the directory; returns what the disk showed where that is not what the assignment expected."""
        try:
            if route.status is SandboxStatus.ASSIGNED and route.workspace == Workspace.RESTORED:
                self._restore(route)
            elif route.status is SandboxStatus.ASSIGNED and route.workspace in (Workspace.NEW, Workspace.LOST):
                # Nobody was told that this generation has files, so whatever lies here is of an earlier life.
                self._root.delete(route.key)
            made = self._root.create(route.key, route.sandbox_uid, route.sandbox_uid)
            self._remember(route)
        except FileFault as fault:
            raise file_error(fault) from fault
        except (WorkspaceFault, OSError) as fault:
            raise _failed(route, fault) from fault
        return Workspace.LOST if route.workspace == Workspace.KEPT and not made.kept else None

    def _restore(self, route: Route) -> None:
        if route.snapshot is None or route.ready_us is not None:
            return  # it was restored in an earlier life of this worker
        if self._snapshots is None:
            raise SnapshotUnavailable("This worker has no object store to restore the sandbox from.")
        self._snapshots.restore(route.key, route.snapshot, route.sandbox_uid, route.sandbox_uid)

    def _cached(self, key: SandboxKey, generation: int) -> _Known | None:
        with self._lock:
            known = self._known.get(key)
        return known if known is not None and known.generation == generation else None

    def _remember(self, route: Route) -> None:
        uid, gid = account_of(route.sandbox_uid)
        directories = self._root.directories(route.key)
        room = self._room_of(route.key, directories, uid)
        files = SandboxFiles(directories, uid, gid, self._root.trash, self._limits, room=room)
        home = self._templates.restore(route.key, Home(uid, gid, directories))
        with self._lock:
            self._known[route.key] = _Known(route.generation, home, files)


def account_of(sandbox_uid: int) -> tuple[int, int]:
    """The uid and gid that commands get: the sandbox's own, or, where the worker is not root, the worker's."""
    if os.geteuid() == 0:
        return sandbox_uid, sandbox_uid
    return os.geteuid(), os.getegid()


def _failed(route: Route, fault: Exception) -> SandloomError:
    log.error("workspace cannot be made ready", sandbox_id=route.key.sandbox_id, reason=str(fault))
    return WorkspaceFailed()
