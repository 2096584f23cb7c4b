"""The worker's side of the database, driven by hand: what a worker writes, without what it runs."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from sandloom.contracts.ports import Bus
from sandloom.db import Database
from sandloom.execs.admission import ExecPolicy
from sandloom.execs.records import Exec, Outcome
from sandloom.execs.service import Execs
from sandloom.execs.states import ExecStatus
from sandloom.fleet.records import NodeInfo
from sandloom.ids import ExecKey, SandboxKey
from sandloom.reclaim.adoption import register
from sandloom.sandboxes.records import Fence
from sandloom.sandboxes.service import Sandboxes, SandboxPolicy

SUCCEEDED = Outcome(ExecStatus.SUCCEEDED, "exit", exit_code=0, usage={"cpu_ms": 3}, duration_ms=5)
Events = Sequence[tuple[str, bytes]]


class Owner:
    """A registered worker whose commands end as the test says; ``tenant_id`` is the one that it is asked about."""

    def __init__(self, db: Database, bus: Bus, profile_hash: str, worker_id: str = "worker-a") -> None:
        self._db = db
        self._bus = bus
        self.worker_id = worker_id
        self.tenant_id = "default"
        self.sandboxes = Sandboxes(db, SandboxPolicy(profile_hash))
        self.execs = Execs(db, ExecPolicy())
        node = NodeInfo(
            worker_id=worker_id,
            queue=f"sandloom.worker.{worker_id}",
            data_endpoint="http://127.0.0.1:9",
            public_key="",
            profile_id="coding-default",
            declared_hash=profile_hash,
            effective_hash=profile_hash,
            isolation_level="strict",
            storage_mode="local",
            root_id="root-a",
            uid_start=20000,
            uid_end=59999,
            capacity=1000,
            exec_slots=100,
            lease_ttl_seconds=3600,
            fence_grace_seconds=60,
        )
        self.epoch = register(db, node).epoch

    def make_ready(self, sandbox_id: str, generation: int) -> None:
        key = SandboxKey(self.tenant_id, sandbox_id)
        self.sandboxes.mark_ready(Fence(key, generation, self.worker_id, self.epoch))

    def claim(self, sandbox_id: str, exec_id: str, generation: int, *, silently: bool = False) -> Exec:
        """QUEUED to RUNNING; ``silently``: as if the head had been lost."""
        key = ExecKey(self.tenant_id, sandbox_id, exec_id)
        claimed = self.execs.claim(key, generation, self.worker_id, self.epoch)
        assert claimed is not None
        if not silently:
            self._bus.publish_head(key, claimed.last_seq, False)
        return claimed

    def write(self, record: Exec, *events: tuple[str, bytes], after: int | None = None) -> int:
        """Append; returns the new last seq."""
        seq = record.last_seq if after is None else after
        assert self.execs.append(record.key, self.worker_id, self.epoch, seq, events)
        self._bus.publish_head(record.key, seq + len(events), False)
        return seq + len(events)

    def finish(self, record: Exec, events: Events = (), outcome: Outcome = SUCCEEDED, after: int | None = None) -> None:
        seq = record.last_seq if after is None else after
        assert self.execs.finish(record.key, self.worker_id, self.epoch, seq, events, outcome)
        self._bus.publish_head(record.key, seq + len(events) + 1, True)

    def run_next(
        self, sandbox_id: str, generation: int, events: Events, outcome: Outcome = SUCCEEDED
    ) -> threading.Thread:
        """In the background: the next command that is admitted to the sandbox runs and ends with these events."""
        sandbox = SandboxKey(self.tenant_id, sandbox_id)

        def work() -> None:
            waiting = threading.Event()
            while not (found := self._open(sandbox)):
                waiting.wait(0.01)
            self.finish(self.claim(sandbox_id, found[0].exec_id, generation), events, outcome)

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        return thread

    def _open(self, sandbox: SandboxKey) -> list[ExecKey]:
        return [entry.key for entry in self.execs.open_for(self.worker_id, self.epoch) if entry.key.sandbox == sandbox]
