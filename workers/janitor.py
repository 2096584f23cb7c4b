"""What an earlier life of this node left on its disk and in its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from sandloom.contracts.ports import Bus
from sandloom.errors import SandboxNotFound, SandloomError
from sandloom.execs.service import Execs
from sandloom.execution.workspace import WorkspaceFault, WorkspaceRoot
from sandloom.ids import ExecKey, SandboxKey
from sandloom.sandboxes.records import Route
from sandloom.sandboxes.service import Sandboxes
from sandloom.sandboxes.states import SandboxStatus
from sandloom.telemetry import get_logger
from workers.gates import Gates
from workers.identity import Identity
from workers.lifecycle import Lifecycle
from workers.results import Results

log = get_logger("sandloom.workers.janitor")


class Announcer:
    """Tells those who wait what became of the commands of an earlier life."""

    def __init__(self, execs: Execs, bus: Bus, results: Results) -> None:
        self._execs = execs
        self._bus = bus
        self._results = results

    def announce(self, opened: Iterable[ExecKey], ended: Iterable[tuple[ExecKey, str]]) -> None:
        """``opened``: what registration found open and may have ended; ``ended``: tasks that may lack a result."""
        for key in opened:
            record = self._execs.get(key)
            if record.terminal:
                self._bus.publish_head(key, record.last_seq, True)
                self._results.complete(key, record.task_id)
        for key, task_id in ended:
            self._results.complete(key, task_id)


class Janitor:
    """Works beside the node."""

    def __init__(
        self, identity: Identity, root: WorkspaceRoot, sandboxes: Sandboxes, gates: Gates, lifecycle: Lifecycle
    ) -> None:
        self._identity = identity
        self._root = root
        self._sandboxes = sandboxes
        self._gates = gates
        self._lifecycle = lifecycle

    def tidy(self) -> None:
        """Once after each start: finish releases that were cut short, remove directories that belong to nobody, empty
        the trash."""
        for key, generation in self._sandboxes.releasing(self._identity.worker_id, self._identity.epoch):
            self._safely(key, partial(self._lifecycle.release, key, generation))
        self.drop_left()
        for found in list(self._root.keys()):
            key = SandboxKey(*found)
            self._safely(key, partial(self._sweep, key))
        self._root.drop_empty_tenants()
        left = not self._root.empty_trash()
        log.info("what an earlier life left is gone", trash_left=left)

    def drop_left(self) -> None:
        """Remove directories that belong to nobody, or whose sandboxes went elsewhere."""
        for found in list(self._root.keys()):
            key = SandboxKey(*found)
            self._safely(key, partial(self._look_at, key))

    def _safely(self, key: SandboxKey, job: Callable[[], object]) -> None:
        try:
            job()
        except (SandloomError, WorkspaceFault, OSError) as error:
            log.warning("not removed", sandbox_id=key.sandbox_id, reason=str(error))

    def _look_at(self, key: SandboxKey) -> None:
        if not self._is_left(self._route(key)):
            return
        with self._gates.exclusive(key):
            # Under the gate nobody makes the directory ready; the row may have changed since it was read.
            if self._is_left(self._route(key)) and self._root.delete(key):
                log.info("left directory removed", sandbox_id=key.sandbox_id)

    def _sweep(self, key: SandboxKey) -> None:
        if self._identity.owns(self._sandboxes.get(key)):
            self._root.sweep(key)

    def _route(self, key: SandboxKey) -> Route | None:
        try:
            return self._sandboxes.get(key)
        except SandboxNotFound:
            return None

    def _is_left(self, route: Route | None) -> bool:
        """On a shared root another worker may own the directory; on a local one nobody else can use it."""
        if route is None or route.status is SandboxStatus.RELEASED:
            return True
        if route.status is SandboxStatus.SUSPENDED and not route.has_directory:
            return True  # the snapshot is all that counts
        return route.root_id != self._root.root_id
