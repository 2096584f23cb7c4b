"""Any order of calls leaves rows that agree, statuses that moved along their tables, and generations that only grow."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from sandloom.db import Database, open_database
from sandloom.db.tables import execs, sandboxes, workers
from sandloom.errors import SandloomError
from sandloom.execs.admission import ExecPolicy
from sandloom.execs.records import Exec
from sandloom.execs.states import ExecStatus
from sandloom.sandboxes.records import Fence
from tests.integration.domain.world import REFUSED, World, key, request
from tests.properties.steps import check_exec_step, check_sandbox_step

BOXES = st.sampled_from(["box-1", "box-2", "box-3"])
WORKERS = st.sampled_from(["w1", "w2"])
EXEC_IDS = st.sampled_from([f"run-{n}" for n in range(5)])
SCOPES = st.sampled_from([None, "a", "b"])
EVENTS = st.lists(st.sampled_from([("stdout", b"x"), ("stderr", b"y"), ("note", b"{}")]), max_size=3)


class DomainMachine(RuleBasedStateMachine):
    """Fences and claimed commands are kept after they have become stale, and used again."""

    database: Database
    fences = Bundle("fences")
    records = Bundle("records")

    def __init__(self) -> None:
        super().__init__()
        self.world = World(self.database, execs=ExecPolicy(max_parallel_execs_per_sandbox=2, max_queued_execs=4))
        self.world.empty()
        self.boxes: dict[str, Any] = {}
        self.execs: dict[tuple[str, str], Any] = {}
        self.epochs: dict[str, int] = {}
        for worker_id in ("w1", "w2"):
            self.world.register(worker_id, capacity=2, root_id="shared", uid_start=700, uid_end=705)
        for box in ("box-1", "box-2"):
            self.world.running(self.world.ready(box), "run-0", "a")

    # --- the control plane ---

    @rule(target=fences, box=BOXES)
    def resolve(self, box: str) -> Fence:
        try:
            return self.world.resolve(box).fence
        except SandloomError:
            return Fence(key(box), 1, "w1", 1)

    @rule(target=fences, box=BOXES)
    def open(self, box: str) -> Fence:
        """Resolve and connect."""
        try:
            return self.world.ready(box).fence
        except SandloomError:
            return Fence(key(box), 1, "w1", 1)

    @rule(target=records, box=BOXES, exec_id=EXEC_IDS, scope=SCOPES, back=st.sampled_from([0, 0, 0, 1]))
    def admit(self, box: str, exec_id: str, scope: str | None, back: int) -> Exec | None:
        try:
            generation = self.world.sandboxes.get(key(box)).generation - back
            return self.world.execs.admit(key(box), generation, request(exec_id, scope))[0]
        except SandloomError:
            return None

    @rule(record=records)
    def cancel(self, record: Exec | None) -> None:
        if record is not None:
            self.world.execs.cancel(record.key)

    @rule(box=BOXES, named=st.booleans())
    def release(self, box: str, named: bool) -> None:
        self._try(lambda: self.world.sandboxes.begin_release(key(box), 1 if named else None, "tester", "released"))

    # --- the worker ---

    @rule(fence=fences)
    def ready(self, fence: Fence) -> None:
        self._try(lambda: self.world.sandboxes.mark_ready(fence))

    @rule(target=fences, box=BOXES)
    def current_owner(self, box: str) -> Fence:
        """What a worker that reads the route knows."""
        try:
            return self.world.sandboxes.get(key(box)).fence
        except SandloomError:
            return Fence(key(box), 1, "w1", 1)

    @rule(fence=fences, op_id=st.sampled_from([None, "op-1", "op-2"]))
    def touch(self, fence: Fence, op_id: str | None) -> None:
        self._try(lambda: self.world.sandboxes.touch(fence, op_id))

    @rule(target=records, record=records)
    def claim(self, record: Exec | None) -> Exec | None:
        return record and (self.world.claim(record) or record)

    @rule(worker_id=WORKERS)
    def claim_all(self, worker_id: str) -> None:
        """What a worker does that has slots and reads its queue."""
        for found in self.world.execs.open_for(worker_id, self.epochs.get(worker_id, 1)):
            self._try(partial(self._claim_and_append, self.world.execs.get(found.key)))

    def _claim_and_append(self, record: Exec) -> None:
        self.world.sandboxes.mark_ready(record.fence)
        claimed = self.world.claim(record)
        if claimed is not None:
            owner = (record.key, record.worker_id, record.worker_epoch)
            assert self.world.execs.append(*owner, claimed.last_seq, [("stdout", b"x")])

    @rule(target=records, box=BOXES, exec_id=EXEC_IDS)
    def look(self, box: str, exec_id: str) -> Exec | None:
        try:
            return self.world.exec(exec_id, box)
        except SandloomError:
            return None

    @rule(record=records, events=EVENTS)
    def append(self, record: Exec | None, events: list[tuple[str, bytes]]) -> None:
        if record is not None:
            owner = (record.key, record.worker_id, record.worker_epoch)
            self.world.execs.append(*owner, record.last_seq, events)

    @rule(record=records, events=EVENTS)
    def finish(self, record: Exec | None, events: list[tuple[str, bytes]]) -> None:
        if record is not None:
            self.world.finish(record, events=events)

    @rule(record=records)
    def refuse(self, record: Exec | None) -> None:
        if record is not None:
            self.world.execs.refuse(record.key, record.worker_id, record.worker_epoch, REFUSED)

    @rule(box=BOXES)
    def finish_all(self, box: str) -> None:
        """Whatever runs in a sandbox ends, and a release of it is then done."""

        def finish() -> None:
            for record in self.world.execs.list(key(box), 50, 0)[0]:
                if record.status is ExecStatus.RUNNING:
                    assert self.world.finish(record)

        self._try(finish)
        self._try(lambda: self.world.sandboxes.finish_release(self.world.sandboxes.get(key(box)).fence))

    @rule(fence=fences)
    def finish_release(self, fence: Fence) -> None:
        self.world.sandboxes.finish_release(fence)

    @rule(worker_id=WORKERS, takeover=st.booleans(), disk=st.sampled_from(["all", "all", "none", "other"]))
    def start(self, worker_id: str, takeover: bool, disk: str) -> None:
        values: dict[str, Any] = {"capacity": 2, "uid_start": 700, "uid_end": 705}
        values |= {"takeover": takeover, "root_id": "other" if disk == "other" else "shared"}
        if disk == "none":
            values["present"] = frozenset()
        self._try(lambda: self.world.restart(worker_id, **values))

    @rule(worker_id=WORKERS)
    def renew(self, worker_id: str) -> None:
        self.world.fleet.renew(worker_id, self.epochs.get(worker_id, 1), 600, {})

    @rule(worker_id=WORKERS)
    def unregister(self, worker_id: str) -> None:
        self.world.fleet.unregister(worker_id, self.epochs.get(worker_id, 1))

    # --- maintenance ---

    @rule(worker_id=WORKERS)
    def lose(self, worker_id: str) -> None:
        for lease in self.world.fleet.leases():
            if lease.worker_id == worker_id:
                assert self.world.reclaim.declare_lost(lease)

    @rule(long_ago=st.booleans())
    def reclaim(self, long_ago: bool) -> None:
        if long_ago:
            self.world.set(workers, workers.c.status == "GONE", lease_expires_us=0)
        self.world.reclaim.end_lost_execs()
        self.world.reclaim.release_orphans()
        self.world.reclaim.stalled_releases()
        self.world.reclaim.due_rings()

    @rule()
    def idle(self) -> None:
        self.world.forget_activity()
        self.world.reclaim.begin_idle_releases()

    @rule(exec_id=EXEC_IDS)
    def wait_too_long(self, exec_id: str) -> None:
        self.world.set(execs, (execs.c.exec_id == exec_id) & (execs.c.status == "QUEUED"), queued_us=1)
        self.world.reclaim.end_queue_timeouts()

    # --- what always holds ---

    @invariant()
    def rows_agree(self) -> None:
        self.world.check()

    @invariant()
    def everything_moved_along_its_table(self) -> None:
        for row in self.world.rows(sandboxes):
            before = self.boxes.get(row.sandbox_id)
            if before is not None:
                check_sandbox_step(before, row)
            self.boxes[row.sandbox_id] = row
        for row in self.world.rows(execs):
            name = (row.sandbox_id, row.exec_id)
            before = self.execs.get(name)
            if before is not None:
                check_exec_step(before, row)
            self.execs[name] = row

    @invariant()
    def epochs_only_grow(self) -> None:
        for row in self.world.rows(workers):
            assert row.epoch >= self.epochs.get(row.worker_id, 1)
            self.epochs[row.worker_id] = row.epoch

    @staticmethod
    def _try(call: Any) -> None:
        """A refusal is an answer; anything else is a fault."""
        try:
            call()
        except SandloomError as error:
            if error.code == "SERVICE_UNAVAILABLE":
                raise


@pytest.fixture
def machine_database(_sqlite_template: Path, tmp_path: Path) -> Iterator[Database]:
    path = tmp_path / "machine.db"
    shutil.copyfile(_sqlite_template, path)
    database = open_database(f"sqlite:///{path}")
    yield database
    database.dispose()


def test_any_order_of_calls(machine_database: Database):
    DomainMachine.database = machine_database
    run_state_machine_as_test(
        DomainMachine,
        settings=settings(
            max_examples=6, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
