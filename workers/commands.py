"""Commands on this node, each from its claim to its receipt."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from sandloom.contracts.ports import Bus
from sandloom.errors import DiskFull, LaunchFailed, SandloomError, Unavailable, WorkspaceFailed
from sandloom.execs.records import Exec, Outcome
from sandloom.execs.service import Execs
from sandloom.execution.disk import DiskBudgetReached
from sandloom.execution.reap import kill_uid_range
from sandloom.execution.runner import Handle, Runner
from sandloom.execution.spec import BudgetsUnavailable, Plan, SpawnerUnavailable, SpecInvalid
from sandloom.ids import ExecKey, SandboxKey
from sandloom.settings import Settings
from sandloom.telemetry import get_logger
from workers.homes import Homes
from workers.identity import Identity
from workers.ledger import Ledger
from workers.output import Events, Flusher, OutputWriter, batches
from workers.runtime_env import RuntimeEnvironment
from workers.translate import (
    Ending,
    Home,
    budgets_refused,
    disk_refused,
    env_refused,
    group_of,
    limits_of,
    lost,
    outcome_of,
    refused,
    spec_of,
)

log = get_logger("sandloom.workers.commands")

#: A command is announced as running after this: one that ends at once has its end to say it.
ANNOUNCE_SECONDS = 0.050


class Running:
    """A command that this node claimed or is about to claim. The first reason to end it counts."""

    def __init__(self, key: ExecKey, generation: int) -> None:
        self.key = key
        self.generation = generation
        self.done = threading.Event()
        self.ending: Ending | None = None
        self._handle: Handle | None = None
        self._lock = threading.Lock()

    def attach(self, handle: Handle) -> None:
        with self._lock:
            self._handle = handle
            ending = self.ending
        if ending is not None:
            handle.cancel()

    def end(self, ending: Ending) -> None:
        with self._lock:
            self.ending = self.ending or ending
            handle = self._handle
        if handle is not None:
            handle.cancel()


@dataclass(frozen=True, slots=True)
class Engine:
    """What runs a command here."""

    runner: Runner
    plan: Plan
    settings: Settings
    toolchain_env: Mapping[str, str]


class Commands:
    """Runs commands on the threads that call ``run``; at most one run per exec at a time."""

    def __init__(
        self,
        identity: Identity,
        execs: Execs,
        homes: Homes,
        engine: Engine,
        bus: Bus,
        given_up: Callable[[], bool],
    ) -> None:
        self._identity = identity
        self._execs = execs
        self._homes = homes
        self._engine = engine
        self._limits = limits_of(engine.settings)
        self._runtime_env = RuntimeEnvironment(engine.settings, engine.toolchain_env)
        self._bus = bus
        self._given_up = given_up
        # The other half of the connections is for claims and ends.
        self._flusher = Flusher(engine.settings.database_pool_size // 2)
        self._lock = threading.Lock()
        self._running: dict[ExecKey, Running] = {}

    # --- one command ---

    def run(self, key: ExecKey, generation: int) -> Exec | None:
        """Claim the exec and, if that was won, see it to its end; returns it as it was claimed."""
        # Before the command counts as running: a release that waits for running commands may hold the workspace.
        home = self._prepare(key, generation)
        if home is None:
            return None
        running = Running(key, generation)
        with self._lock:
            if key in self._running:
                return None
            self._running[key] = running
        try:
            return self._run(running, home)
        finally:
            with self._lock:
                del self._running[key]
            running.done.set()

    def _run(self, running: Running, home: Home) -> Exec | None:
        ledger = Ledger(self._execs, self._identity, running.key, running.generation, self._given_up)
        record = self._claim(ledger, running.key)
        if record is None:
            return None
        try:
            events, outcome = self._execute(running, record, home, ledger)
        except SandloomError as error:
            events, outcome = [], refused(error)
        except Exception:
            log.exception("command failed inside the worker", exec_id=running.key.exec_id)
            running.end(Ending.STOPPED)
            events, outcome = [], lost("the worker met an unexpected condition; its log has the reason")
        self._finish(running, ledger, events, outcome)
        return record

    def _prepare(self, key: ExecKey, generation: int) -> Home | None:
        """The workspace: after a restart a sandbox with waiting commands is only assigned.

        None when there is nothing to do, or nothing to do now: the row then still waits.
        """
        try:
            return self._homes.home(key.sandbox, generation)
        except (DiskFull, WorkspaceFailed) as error:
            self._refuse(key, error)
        except Unavailable as error:
            log.warning("command waits for the database", exec_id=key.exec_id, code=error.code)
        except SandloomError:
            pass  # the sandbox has moved on, and with it the right to run the command
        return None

    def _refuse(self, key: ExecKey, error: SandloomError) -> None:
        if self._execs.refuse(key, self._identity.worker_id, self._identity.epoch, refused(error)):
            self._bus.publish_head(key, self._execs.get(key).last_seq, True)

    def _claim(self, ledger: Ledger, key: ExecKey) -> Exec | None:
        try:
            return ledger.claim()
        except Unavailable as error:
            log.warning("command waits for the database", exec_id=key.exec_id, code=error.code)
            return None

    def _execute(self, running: Running, record: Exec, home: Home, ledger: Ledger) -> tuple[Events, Outcome]:
        engine = self._engine
        spec = spec_of(record, home, engine.plan, engine.settings, self._limits, self._runtime_env.next())
        writer = OutputWriter(
            self._flusher, lambda events: self._append(running.key, ledger, events), lambda: running.end(Ending.FENCED)
        )
        try:
            handle = engine.runner.start(spec, writer.sink)
        except SpecInvalid as error:
            raise env_refused(str(error)) from error
        except DiskBudgetReached as error:
            return [], disk_refused(str(error))
        except BudgetsUnavailable as error:
            log.error("budgets cannot be held", reason=str(error))
            raise budgets_refused(spec) from error
        except SpawnerUnavailable as error:
            log.error("the spawner takes no command", reason=str(error))
            raise LaunchFailed("The worker cannot start commands at the moment.") from error
        running.attach(handle)
        verdict = handle.wait(lambda: self._bus.publish_head(running.key, ledger.seq, False), ANNOUNCE_SECONDS)
        if verdict.error is not None:
            log.warning(
                "command not started", exec_id=running.key.exec_id, fault=verdict.error.value, detail=verdict.detail
            )
        return writer.finish(), outcome_of(verdict, running.ending)

    def _append(self, key: ExecKey, ledger: Ledger, events: Events) -> bool:
        written = ledger.append(events)
        if written:
            self._bus.publish_head(key, ledger.seq, False)
        return written

    def _finish(self, running: Running, ledger: Ledger, events: Events, outcome: Outcome) -> None:
        *earlier, last = batches(events)
        written = all(self._append_late(ledger, batch) for batch in earlier)
        if written and ledger.finish(last, outcome):
            self._bus.publish_head(running.key, ledger.seq, True)
            return
        log.warning("command ended without a receipt", exec_id=running.key.exec_id, status=outcome.status.value)

    def _append_late(self, ledger: Ledger, events: Events) -> bool:
        return bool(ledger.persist(lambda: ledger.append(events)))

    # --- all of them ---

    def find(self, key: ExecKey) -> Running | None:
        with self._lock:
            return self._running.get(key)

    def cancel(self, key: ExecKey) -> bool:
        """Begin to end a command; whether this node has it."""
        running = self.find(key)
        if running is not None:
            running.end(Ending.CANCELLED)
        return running is not None

    def of_sandbox(self, key: SandboxKey) -> list[Running]:
        with self._lock:
            return [running for running in self._running.values() if running.key.sandbox == key]

    def clear(self, key: SandboxKey, uid: int) -> None:
        """Its commands have ended and none can start: nothing of the sandbox, which has ``uid``, is left running."""
        runner = self._engine.runner
        # When this node started it ended every process of its uids, so one that ran nothing since has none.
        if self._engine.plan.uid_separation and runner.has_run(uid):
            kill_uid_range(uid, uid)
            runner.forget_uid(uid)
        runner.forget(group_of(key))

    def all(self) -> list[Running]:
        with self._lock:
            return list(self._running.values())

    def end_all(self, ending: Ending) -> None:
        end_each(self.all(), ending)

    def finish_orphan(self, key: ExecKey, record: Exec) -> None:
        """End a RUNNING row of this epoch that no thread here runs."""
        if self.find(key) is not None:
            return
        outcome = lost("the worker lost track of the command")
        if self._execs.finish(key, self._identity.worker_id, self._identity.epoch, record.last_seq, [], outcome):
            log.error("running row without a command ended", exec_id=key.exec_id)
            self._bus.publish_head(key, record.last_seq + 1, True)

    def close(self) -> None:
        self._flusher.close()


def end_each(commands: Iterable[Running], ending: Ending) -> None:
    for running in commands:
        running.end(ending)
