"""Suspend and resume over rows. Every move is one conditional write that says whether it won."""

from __future__ import annotations

import random
from typing import Any

from sqlalchemy import Connection

from sandloom.db.engine import Database
from sandloom.errors import (
    DormantWorkspaceUnavailable,
    NoWorkerAvailable,
    SandboxNotFound,
    SandboxNotReady,
    SandloomError,
    StaleGeneration,
    StaleRoute,
    SuspendBusy,
    SuspendInProgress,
)  # fmt: skip
from sandloom.ids import SandboxKey
from sandloom.sandboxes import loose, repository, statements
from sandloom.sandboxes import suspension_statements as suspension
from sandloom.sandboxes.diagnose import owner_lives
from sandloom.sandboxes.placement import Loads, no_loads
from sandloom.sandboxes.races import Race, win
from sandloom.sandboxes.records import Fence, Route
from sandloom.sandboxes.service import SandboxPolicy
from sandloom.sandboxes.states import LIVE, SandboxStatus, Workspace


class Suspensions:
    """The service over rows; it asks no worker and sends no message."""

    def __init__(self, db: Database, policy: SandboxPolicy, loads: Loads = no_loads) -> None:
        self._db = db
        self._policy = policy
        self._loads = loads

    # --- the owner ---

    def begin(self, fence: Fence, idle_since_us: int | None = None) -> bool:
        """READY to SUSPENDING; False when it is SUSPENDED already. SUSPENDING stays: the caller, who has the sandbox
        alone, goes on with what was cut short.

        ``idle_since_us``: only unless it was used after that. Raises SuspendBusy, SandboxNotReady, StaleGeneration.
        """

        def move(connection: Connection) -> bool:
            of_fence = statements.of_fence(fence)
            if idle_since_us is None:
                moved = suspension.BEGIN.run(connection, of_fence)
            else:
                moved = suspension.BEGIN_IDLE.run(connection, {**of_fence, "idle_since": idle_since_us})
            if moved == 1:
                return True
            row = repository.fetch(connection, fence.key)
            if row is None:
                raise SandboxNotFound
            if row.generation == fence.generation and row.status == SandboxStatus.SUSPENDED:
                return False
            if repository.fence_of(row) != fence:
                raise StaleGeneration
            if row.status == SandboxStatus.SUSPENDING:
                return True
            raise _why_not_suspended(row.status)

        return self._db.write(move)

    def abort(self, fence: Fence) -> bool:
        """SUSPENDING back to READY."""
        return self._db.write(lambda c: suspension.ABORT.run(c, statements.of_fence(fence)) == 1)

    def announce(self, fence: Fence, snapshot: str) -> bool:
        """That the object store is about to get a snapshot of this name: a suspend that comes to nothing leaves it to
        maintenance."""
        values = {**statements.of_fence(fence), "new_snapshot": snapshot}
        return self._db.write(lambda c: suspension.ANNOUNCE.run(c, values) == 1)

    def finish(self, fence: Fence, snapshot: str | None = None) -> bool:
        """SUSPENDING to SUSPENDED; the slot is given back, the UID stays held for the files.

        Without ``snapshot``, the one that the row names is left to maintenance: only begun, or of its last sleep.
        """

        def move(connection: Connection) -> bool:
            row = repository.fetch(connection, fence.key, lock=True) if snapshot is None else None
            moved = suspension.FINISH.run(connection, {**statements.of_fence(fence), "new_snapshot": snapshot})
            if moved != 1:
                return False
            if row is not None and row.snapshot is not None:
                loose.let_loose(connection, fence.key, row.snapshot)
            repository.give_back(connection, fence.worker_id)
            return True

        return self._db.write(move)

    def drop_copy(self, fence: Fence, snapshot: str) -> bool:
        """The files are only in the snapshot from now on, and the UID is free: the owner has removed its copy."""
        values = {**statements.of_fence(fence), "of_snapshot": snapshot}
        return self._db.write(lambda c: suspension.DROP_COPY.run(c, values) == 1)

    def keep(self, fence: Fence, snapshot: str) -> bool:
        """The object store has the files of a sleeping sandbox now, too, as was announced to ``LooseSnapshots``. Raises
        ObjectStoreUnavailable: it took too long."""

        def move(connection: Connection) -> bool:
            moved = suspension.KEEP.run(connection, {**statements.of_fence(fence), "new_snapshot": snapshot})
            if moved == 1:
                loose.take_back(connection, fence.key, snapshot)
            return moved == 1

        return self._db.write(move)

    def staying(self, worker_id: str) -> list[Route]:
        """Sandboxes that live, or have files, on this worker; at most 1000."""
        rows = self._db.read(lambda connection: suspension.STAYING.all(connection, {"of_worker": worker_id}))
        return [self._route(row) for row in rows]

    def copies(self, worker_id: str) -> list[Route]:
        """Suspended sandboxes whose files are on this owner and in the object store, the longest asleep first."""
        values = {"of_worker": worker_id}
        rows = self._db.read(lambda connection: suspension.COPIES.all(connection, values))
        return [self._route(row) for row in rows]

    def fall_back(self, fence: Fence) -> bool:
        """ASSIGNED back to SUSPENDED, when a resume failed and no command waits; the slot is given back."""

        def move(connection: Connection) -> bool:
            moved = suspension.FALL_BACK.run(connection, statements.of_fence(fence))
            if moved == 1:
                repository.give_back(connection, fence.worker_id)
            return moved == 1

        return self._db.write(move)

    # --- control plane ---

    def begin_resume(self, key: SandboxKey, by: str, *, elsewhere: bool = False) -> tuple[Route, bool]:
        """SUSPENDED to ASSIGNED on the worker that has the files, and True; what is awake already, and False.

        Its owner first, whatever the profile is by now; then any worker over the same shared root; then, when the owner
        is not there or has dropped its copy, any worker, from the snapshot; last its owner, although that takes nothing
        new. Elsewhere under the next generation. ``elsewhere``: not its owner.

        Raises SandboxNotFound, StaleRoute (released), SuspendInProgress, NoWorkerAvailable (the owner is full, or
        nobody can restore it), DormantWorkspaceUnavailable (the files are on a worker that is not there).
        """

        def attempt(connection: Connection, race: Race) -> tuple[Route, bool]:
            row = repository.fetch(connection, key, lock=True)
            if row is None:
                raise SandboxNotFound
            status = SandboxStatus(row.status)
            if status in LIVE:
                return self._route(row), False
            if status is SandboxStatus.SUSPENDING:
                raise SuspendInProgress
            if status is not SandboxStatus.SUSPENDED:
                raise StaleRoute("The sandbox was released; resolve it again.")
            worker = None
            if row.held_uid is not None and not elsewhere:
                worker = repository.reserve(connection, row.worker_id, row.owner_epoch)
            if worker is not None:
                self._wake(connection, row, worker, row.sandbox_uid, Workspace.KEPT, by)
            else:
                self._move(connection, row, by, race, elsewhere)
            woken = repository.fetch(connection, key)
            assert woken is not None
            return self._route(woken), True

        return win(self._db, attempt)

    def takers(self, profile_id: str) -> list[str]:
        """Queues of live workers that have a free slot for a sandbox that is only in the object store, in no order."""

        def look(connection: Connection) -> list[str]:
            found = repository.candidates(connection, self._policy.profile(profile_id))
            return repository.queues(connection, [candidate.worker_id for candidate in found])

        queues = self._db.read(look)
        return random.sample(queues, len(queues))

    # --- inside ---

    def _route(self, row: Any) -> Route:
        return repository.to_route(row, self._policy.idle_ttl_seconds)

    def _move(self, connection: Connection, row: Any, by: str, race: Race, elsewhere: bool) -> None:
        """To another worker over the root that holds the files, or to any from the snapshot; to its own one, although
        that takes nothing new, when there is no other way."""
        profile = self._policy.profile(row.profile_id)
        there, worker, workspace = row.held_uid is not None, None, Workspace.KEPT
        if there and row.storage_mode == "shared":
            neighbours = repository.neighbours(connection, row.root_id, profile)
            worker = repository.place(connection, neighbours, self._loads, race)
        elif row.snapshot is not None and not (there and owner_lives(row)):
            workspace = Workspace.RESTORED
            worker = repository.place(connection, repository.candidates(connection, profile), self._loads, race)
        if worker is not None:
            uid = repository.free_uid(connection, worker, race.scatter_uids)
            self._wake(connection, row, worker, uid, workspace, by)
            return
        if workspace is Workspace.RESTORED:
            raise NoWorkerAvailable.of(row.profile_id)
        if there and not elsewhere:
            worker = repository.reserve_at_home(connection, row.worker_id, row.owner_epoch)
        if worker is not None:
            self._wake(connection, row, worker, row.sandbox_uid, workspace, by)
            return
        if owner_lives(row):
            raise NoWorkerAvailable("The worker that holds the sandbox's files is full.", retry_after_seconds=5)
        raise DormantWorkspaceUnavailable(retry_after_seconds=30)

    def _wake(self, connection: Connection, row: Any, worker: Any, uid: int, workspace: Workspace, by: str) -> None:
        key = SandboxKey(row.tenant_id, row.sandbox_id)
        moved = workspace is Workspace.RESTORED or (worker.worker_id, worker.epoch) != (
            row.worker_id, row.worker_epoch,
        )  # fmt: skip
        generation = row.generation + moved
        suspension.WAKE.run(
            connection,
            {
                **statements.of_key(key), "of_generation": row.generation, "new_generation": generation,
                "new_worker_id": worker.worker_id, "new_worker_epoch": worker.epoch,
                "new_profile_hash": worker.effective_hash, "new_sandbox_uid": uid, "new_held_uid": uid,
                "new_root_id": worker.root_id, "new_storage_mode": worker.storage_mode,
                "new_workspace": workspace.value,
                # Nothing is there until the restore is done.
                "new_ready_us": None if workspace is Workspace.RESTORED else row.ready_us,
            },
        )  # fmt: skip
        if moved:
            repository.close_history(connection, key, row.generation, "resumed", by)
            repository.open_history(connection, key, generation, worker.worker_id, worker.now, by)


def _why_not_suspended(status: str) -> SandloomError:
    if status == SandboxStatus.ASSIGNED:
        return SandboxNotReady()
    if status in (SandboxStatus.RELEASING, SandboxStatus.RELEASED):
        return StaleGeneration("The sandbox was released; resolve it again.")
    return SuspendBusy()
