"""A copy of a sandbox as it is at one moment, under an id of its own.

The copy's row comes first and says that it has files, its directory appears whole; so whatever is cut short between
them is found as ``lost`` and never taken for a new sandbox.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sandloom.errors import NoWorkerAvailable, SandloomError, SnapshotFailed, SnapshotUnavailable, WorkspaceFailed
from sandloom.execution import template_mounts
from sandloom.execution.directories import Directories
from sandloom.execution.durable import sync_file_system
from sandloom.execution.file_faults import FaultKind, FileFault, translated
from sandloom.execution.openat import DIRECTORY_FLAGS, SCAN_FLAGS
from sandloom.execution.tree_copy import TreeCopy
from sandloom.execution.tree_walk import TreeBounds
from sandloom.execution.workspace import WorkspaceFault, WorkspaceRoot
from sandloom.ids import SandboxKey
from sandloom.sandboxes.fork_rules import ForkWay, fork_way
from sandloom.sandboxes.forks import Forks
from sandloom.sandboxes.loose import LooseSnapshots
from sandloom.sandboxes.records import Route
from sandloom.sandboxes.service import Sandboxes
from sandloom.sandboxes.states import SandboxStatus
from sandloom.sandboxes.suspension import Suspensions
from sandloom.telemetry import get_logger
from workers.announced import announced
from workers.gates import Gates
from workers.homes import Homes
from workers.lifecycle import Lifecycle
from workers.snapshots import MEMBERS, Snapshots
from workers.translate import Home, file_error

log = get_logger("sandloom.workers.forker")

#: Within what a caller waits for.
BOUNDS = TreeBounds(max_entries=2_000_000, max_depth=128, seconds=180)


class Forker:
    """Thread-safe."""

    def __init__(
        self,
        root: WorkspaceRoot,
        sandboxes: Sandboxes,
        suspensions: Suspensions,
        forks: Forks,
        loose: LooseSnapshots,
        homes: Homes,
        gates: Gates,
        lifecycle: Lifecycle,
        snapshots: Snapshots | None,
        min_free_bytes: int,
    ) -> None:
        self._root = root
        self._sandboxes = sandboxes
        self._suspensions = suspensions
        self._forks = forks
        self._loose = loose
        self._homes = homes
        self._gates = gates
        self._lifecycle = lifecycle
        self._snapshots = snapshots
        self._min_free_bytes = min_free_bytes

    def fork(self, key: SandboxKey, generation: int, copy: SandboxKey, scope: str, by: str) -> Route:
        """The copy: READY beside its source; or, from a snapshot, ASSIGNED to some worker that will restore it.

        Raises what ``fork_way``, ``Forks``, ``Homes.alone`` and ``Suspensions.begin_resume`` raise, SnapshotFailed when
        the tree cannot be copied whole, DiskFull; then there is no copy.
        """
        source = self._sandboxes.get(key)
        way = fork_way(source, generation)
        self._forks.demand_free(copy, scope)
        made = None
        try:
            if way is ForkWay.SNAPSHOT:
                made = self._duplicated(source, copy, scope, by)
            else:
                # Nobody makes the copy ready before its files are there.
                with self._homes.alone(key, generation) as home, self._gates.exclusive(copy):
                    made = self._begun(self._sandboxes.get(key), copy, scope, by)
                    if made.status is SandboxStatus.ASSIGNED:
                        self._fill(home, made)
            if made.status is SandboxStatus.ASSIGNED:
                return self._homes.connect(copy, made.generation)
            return self._suspensions.begin_resume(copy, by)[0]
        except BaseException:
            if made is not None:
                self._give_up(made, by)
            raise

    # --- the copy's row ---

    def _begun(self, source: Route, copy: SandboxKey, scope: str, by: str) -> Route:
        """ASSIGNED to this worker; where it is full, SUSPENDED in the object store, for another one to restore."""
        try:
            return self._forks.begin(source, copy, scope, by)
        except NoWorkerAvailable:
            snapshots = self._snapshots
            if snapshots is None or not self._suspensions.takers(source.profile_id):
                raise
        return self._kept(snapshots, lambda token: snapshots.save(source.key, copy, token), source, copy, scope, by)

    def _duplicated(self, source: Route, copy: SandboxKey, scope: str, by: str) -> Route:
        snapshots, snapshot = self._snapshots, source.snapshot
        if snapshots is None:
            raise SnapshotUnavailable("This worker has no object store to copy the sandbox from.")
        assert snapshot is not None
        return self._kept(
            snapshots, lambda token: snapshots.duplicate(source.key, snapshot, copy, token), source, copy, scope, by
        )

    def _kept(
        self, snapshots: Snapshots, make: Callable[[str], str], source: Route, copy: SandboxKey, scope: str, by: str
    ) -> Route:  # fmt: skip
        """``make``: puts what begins with a token into the object store, and returns its name."""
        with announced(self._loose, snapshots, copy) as token:
            return self._forks.keep(source, copy, scope, make(token), by)

    def _give_up(self, made: Route, by: str) -> None:
        try:
            route = self._sandboxes.begin_release(made.key, made.generation, by, "fork_failed")
            if route.status is not SandboxStatus.RELEASED:
                self._lifecycle.release(made.key, made.generation)
        except SandloomError as error:
            # RELEASING is gone on with by maintenance; ASSIGNED without files will say that they are lost.
            log.warning("a failed copy is left", sandbox_id=made.key.sandbox_id, code=error.code)

    # --- its files ---

    def _fill(self, home: Home, made: Route) -> None:
        room_bytes = max(0, self._root.space().free_bytes - self._min_free_bytes)
        tree = TreeCopy(home.uid, BOUNDS, room_bytes)

        def fill(top_fd: int) -> None:
            for name in MEMBERS:
                with translated(f"/{name}"):
                    _copy_member(tree, home.directories, name, top_fd)
            sync_file_system(top_fd)

        with _as_errors(made):
            self._root.create_filled(made.key, made.sandbox_uid, made.sandbox_uid, fill)
            templates = template_mounts.remembered(home.directories)
            if templates:
                template_mounts.remember(self._root.directories(made.key), templates)
        log.info(
            "sandbox copied",
            sandbox_id=made.key.sandbox_id,
            entries=tree.entries,
            files_shared=tree.cloned,
            bytes_copied=tree.copied_bytes,
            skipped=tree.skipped,
        )


def _copy_member(tree: TreeCopy, directories: Directories, name: str, top_fd: int) -> None:
    source_fd = os.open(getattr(directories, name), SCAN_FLAGS)
    try:
        target_fd = os.open(name, os.O_RDONLY | DIRECTORY_FLAGS, dir_fd=top_fd)
        try:
            tree.copy(source_fd, target_fd)
        finally:
            os.close(target_fd)
    finally:
        os.close(source_fd)


@contextmanager
def _as_errors(made: Route) -> Iterator[None]:
    try:
        yield
    except FileFault as fault:
        if fault.kind is FaultKind.DISK_FULL:
            raise file_error(fault) from fault
        raise SnapshotFailed(fault.detail) from fault
    except (WorkspaceFault, OSError) as fault:
        log.error("a copy cannot be made", sandbox_id=made.key.sandbox_id, reason=str(fault))
        raise WorkspaceFailed from fault
