"""Two workers that die, are cut off and start again, a reaper, and a clock set by hand: no reachable state breaks a
promise. What workers do is what a node does with the same services; their spawners know only the lease.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sandloom.db import Database
from sandloom.db.tables import execs, sandboxes, workers
from sandloom.errors import SandloomError, WorkerIdInUse
from sandloom.execs.admission import ExecPolicy
from sandloom.execs.records import Exec
from sandloom.execs.states import TERMINAL, ExecStatus
from sandloom.ids import ExecKey
from sandloom.reclaim.watcher import LeaseWatcher
from sandloom.sandboxes.records import Fence
from sandloom.sandboxes.states import SandboxStatus
from tests.integration.domain.world import World, key, request
from tests.properties.fleet_model import POLICY, Clock, Node, adopted
from tests.properties.steps import check_exec_step, check_sandbox_step

BOXES = st.sampled_from(["box-1", "box-2"])
NAMES = st.sampled_from(["w1", "w2"])
EXEC_IDS = st.sampled_from([f"run-{n}" for n in range(4)])
SCOPES = st.sampled_from([None, "a", "b"])
CAPACITY = 2
#: Below a renewal, between two, past the lease, past the fence, past everything that waits.
STEPS_SECONDS = st.sampled_from([1, 3, 10, 31, 61, 97, 400])


class FleetMachine(RuleBasedStateMachine):
    """``nodes``: the present life of each worker, where it has one; ``zombies``: lives that have been superseded and do
    not know it yet."""

    database: Database
    clock: Clock

    def __init__(self) -> None:
        super().__init__()
        self.world = World(
            self.database, execs=ExecPolicy(max_parallel_execs_per_sandbox=2, max_queued_seconds=300), reclaim=POLICY
        )
        self.world.empty()
        self.watcher = LeaseWatcher(
            self.world.fleet.leases, lost_after_seconds=POLICY.lost_after_seconds, max_gap_seconds=1000,
            clock=self.clock,
        )  # fmt: skip
        self.nodes: dict[str, Node] = {}
        self.zombies: list[Node] = []
        self.started: Counter[ExecKey] = Counter()
        self.boxes: dict[str, Any] = {}
        self.rows: dict[tuple[str, str], Any] = {}
        for name in ("w1", "w2"):
            self._register(name, f"disk-{name}", takeover=False)
        # Everybody is at work already.
        for box in ("box-1", "box-2"):
            route = self.world.ready(box)
            for exec_id, scope in (("run-0", "a"), ("run-1", "b")):
                self.world.execs.admit(route.key, route.generation, request(f"{exec_id}-{box}", scope))
            self._claim(self.nodes[route.worker_id], ExecKey(*route.key, f"run-0-{box}"), route.generation)

    # --- time ---

    @rule(seconds=STEPS_SECONDS)
    def time_passes(self, seconds: int) -> None:
        """Who can reaches the database renews; spawners look at their leases."""
        for _ in range(2 if seconds > 10 else 1):
            self.clock.set(self.clock() + seconds / (2 if seconds > 10 else 1))
            for node in self._lives():
                node.tick(self.clock())
            self.watcher.observe()

    @rule()
    def renew_all(self) -> None:
        for node in self._lives():
            if node.connected and self.world.fleet.renew(node.worker_id, node.epoch, POLICY.heartbeat_ttl_seconds, {}):
                node.acknowledged(self.clock())
            elif node.connected:
                self._end(node)

    # --- callers ---

    @rule(box=BOXES)
    def open(self, box: str) -> None:
        """Resolve and connect; the owner makes it ready if it hears of it."""
        try:
            route = self.world.resolve(box)
        except SandloomError:
            return
        node = self.nodes.get(route.worker_id)
        if node is not None and node.connected:
            _ask(lambda: self.world.sandboxes.mark_ready(route.fence))

    @rule(box=BOXES, exec_id=EXEC_IDS, scope=SCOPES)
    def admit(self, box: str, exec_id: str, scope: str | None) -> None:
        def call() -> None:
            generation = self.world.sandboxes.get(key(box)).generation
            self.world.execs.admit(key(box), generation, request(f"{exec_id}-{box}", scope))

        _ask(call)

    @rule(box=BOXES, exec_id=EXEC_IDS)
    def cancel(self, box: str, exec_id: str) -> None:
        _ask(lambda: self.world.execs.cancel(ExecKey(*key(box), f"{exec_id}-{box}")))

    @rule(box=BOXES)
    def release(self, box: str) -> None:
        _ask(lambda: self.world.sandboxes.begin_release(key(box), None, "tester", "released"))

    @rule(box=BOXES, begins=st.booleans())
    def sleep_or_wake(self, box: str, begins: bool) -> None:
        def sleep() -> None:
            fence = self.world.sandboxes.get(key(box)).fence
            node = self.nodes.get(fence.worker_id)
            if node is not None and node.connected and self.world.suspensions.begin(fence):
                assert not [command for command in node.commands if command.sandbox == key(box)]
                assert self.world.suspensions.finish(fence)

        _ask(sleep if begins else lambda: self.world.suspensions.begin_resume(key(box), "tester"))

    # --- workers ---

    @rule(name=NAMES)
    def work(self, name: str) -> None:
        """Make ready what waits, and claim it."""
        node = self._connected(name)
        if node is None:
            return
        for found in self.world.execs.open_for(name, node.epoch):
            if found.status is ExecStatus.QUEUED:
                fence = Fence(found.key.sandbox, found.generation, name, node.epoch)
                _ask(partial(self.world.sandboxes.mark_ready, fence))
                self._claim(node, found.key, found.generation)

    @rule(name=NAMES)
    def doorbells_again(self, name: str) -> None:
        """Messages that were delivered before, or to the wrong one, whatever has become of their commands."""
        node = self._connected(name)
        if node is not None:
            for (box, exec_id), row in self.rows.items():
                self._claim(node, ExecKey(*key(box), exec_id), row.generation)

    @rule(name=NAMES)
    def write_output(self, name: str) -> None:
        for node in self._lives(name):
            for command, record in list(node.commands.items()) if node.connected else ():
                self._write(node, command, record)

    @rule(name=NAMES, number=st.integers(0, 3))
    def end_command(self, name: str, number: int) -> None:
        node = self._connected(name)
        if node is not None and node.commands:
            command = sorted(node.commands)[number % len(node.commands)]
            record = node.commands.pop(command)
            self.world.finish(record)

    @rule(name=NAMES)
    def write_late(self, name: str) -> None:
        """Output of commands whose record is closed; nothing changes."""
        node = self._connected(name)
        if node is not None:
            for (box, exec_id), row in self.rows.items():
                if row.status in TERMINAL:
                    owner = (ExecKey(*key(box), exec_id), node.worker_id, node.epoch)
                    assert not self.world.execs.append(*owner, row.last_seq, [("stdout", b"late")])

    @rule(name=NAMES)
    def finish_releases(self, name: str) -> None:
        """Its commands first, then the sandbox."""
        node = self._connected(name)
        if node is None:
            return
        for route in adopted(self.world, node):
            if route.status is SandboxStatus.RELEASING:
                mine = [command for command in node.commands if command.sandbox == route.key]
                assert not (mine and self.world.sandboxes.finish_release(route.fence)), "released under a command"
                for command in mine:
                    self.world.finish(node.commands.pop(command))
                for waiting in self.world.execs.queued_of(route.key, name):
                    self.world.execs.cancel(waiting)
                self.world.sandboxes.finish_release(route.fence)

    @rule(name=NAMES, connected=st.booleans())
    def network(self, name: str, connected: bool) -> None:
        for node in self._lives(name):
            node.connected = connected

    @precondition(lambda self: self.nodes)
    @rule(name=NAMES)
    def kill(self, name: str) -> None:
        """The process and all it started; a spawner dies with its worker."""
        self.nodes.pop(name, None)

    @rule(name=NAMES)
    def start(self, name: str) -> None:
        """After a crash on its own disk; while the present life seems to live, on another one."""
        present = self.nodes.get(name)
        disk = f"disk-{name}" if present is None or present.root_id != f"disk-{name}" else f"spare-{name}"
        self._register(name, disk, takeover=present is None)

    def _register(self, name: str, disk: str, *, takeover: bool) -> None:
        here = frozenset(
            key(row.sandbox_id) for row in self.world.rows(sandboxes) if (row.worker_id, row.root_id) == (name, disk)
        )
        grace_seconds = POLICY.lost_after_seconds - POLICY.heartbeat_ttl_seconds
        sent_seconds = self.clock()
        try:
            epoch = self.world.register(
                name, capacity=CAPACITY, root_id=disk, uid_start=700, uid_end=705, present=here, takeover=takeover,
                lease_ttl_seconds=POLICY.heartbeat_ttl_seconds, fence_grace_seconds=grace_seconds,
            ).epoch  # fmt: skip
        except WorkerIdInUse:
            return
        if name in self.nodes:
            self.zombies.append(self.nodes[name])
        self.nodes[name] = Node(name, epoch, disk, 0)
        self.nodes[name].acknowledged(sent_seconds)

    @precondition(lambda self: self.zombies)
    @rule()
    def superseded_lives_write(self) -> None:
        """They try everything, under the newest generation; nothing changes."""
        before = self.world.dump()
        for node in self.zombies:
            owner = (node.worker_id, node.epoch)
            for (box, exec_id), row in self.rows.items():
                command = ExecKey(*key(box), exec_id)
                assert self.world.execs.claim(command, row.generation, *owner) is None
                assert not self.world.execs.append(command, *owner, row.last_seq, [("stdout", b"late")])
            for box, route in self.boxes.items():
                fence = Fence(key(box), route.generation, *owner)
                for call in (self.world.sandboxes.mark_ready, self.world.sandboxes.touch, self.world.sandboxes.hold):
                    with pytest.raises(SandloomError):
                        call(fence)
                assert not self.world.sandboxes.finish_release(fence)
                assert not self.world.suspensions.finish(fence)
        assert self.world.dump() == before

    # --- the reaper ---

    @rule()
    def reap(self) -> None:
        self.watcher.observe()
        for lease in self.watcher.lapsed():
            self.world.reclaim.declare_lost(lease)
        self.world.reclaim.end_lost_execs()
        self.world.reclaim.end_queue_timeouts()
        self.world.reclaim.release_orphans()
        assert self.world.reclaim.recount_slots() == []
        self.world.reclaim.begin_idle_releases()
        self.world.reclaim.due_rings()

    # --- what always holds ---

    @invariant()
    def rows_agree(self) -> None:
        """active_execs, the exclusive holder, slots, UIDs, streams and their ends; see ``world.check_rows``."""
        self.world.check()

    @invariant()
    def nobody_holds_more_than_it_can(self) -> None:
        for row in self.world.rows(workers):
            sleeping = [box for box in self.world.rows(sandboxes) if box.worker_id == row.worker_id]
            # What was asleep takes a slot to be released, also where there is none.
            over = sum(box.status == SandboxStatus.RELEASING for box in sleeping)
            assert row.reserved <= CAPACITY + over

    @invariant()
    def everything_moved_along_its_table(self) -> None:
        for row in self.world.rows(sandboxes):
            if row.sandbox_id in self.boxes:
                check_sandbox_step(self.boxes[row.sandbox_id], row)
            self.boxes[row.sandbox_id] = row
        for row in self.world.rows(execs):
            name = (row.sandbox_id, row.exec_id)
            if name in self.rows:
                check_exec_step(self.rows[name], row)
                assert self.rows[name].status not in TERMINAL or row == self.rows[name], "a receipt was changed"
            self.rows[name] = row

    @invariant()
    def nothing_lives_beyond_its_record(self) -> None:
        """What any spawner runs is RUNNING, of that very life, and was never started before."""
        for node in self._lives():
            for command in node.commands:
                row = self.rows[command.sandbox_id, command.exec_id]
                assert (row.status, row.worker_id, row.worker_epoch) == ("RUNNING", node.worker_id, node.epoch), row
        assert all(times == 1 for times in self.started.values()), self.started

    # --- inside ---

    def _lives(self, name: str | None = None) -> list[Node]:
        return [node for node in [*self.nodes.values(), *self.zombies] if name in (None, node.worker_id)]

    def _connected(self, name: str) -> Node | None:
        node = self.nodes.get(name)
        return node if node is not None and node.connected else None

    def _end(self, node: Node) -> None:
        """What a node does that learns that it was superseded."""
        if node in self.zombies:
            self.zombies.remove(node)
        else:
            del self.nodes[node.worker_id]

    def _claim(self, node: Node, command: ExecKey, generation: int) -> None:
        claimed = self.world.execs.claim(command, generation, node.worker_id, node.epoch)
        if claimed is not None and self.clock() < node.fence_seconds:
            self.started[command] += 1
            node.commands[command] = claimed

    def _write(self, node: Node, command: ExecKey, record: Exec) -> None:
        owner = (node.worker_id, node.epoch)
        if self.world.execs.append(command, *owner, record.last_seq, [("stdout", b"x")]):
            node.commands[command] = self.world.execs.get(command)
        else:
            del node.commands[command]


def _ask(call: Any) -> None:
    """A refusal is an answer; anything else is a fault."""
    try:
        call()
    except SandloomError as error:
        if error.code == "SERVICE_UNAVAILABLE":
            raise
