"""The node's own look at its rows: whatever messages were lost, nothing accepted stays undone."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial

from sandloom.errors import SandloomError
from sandloom.execs.records import OpenExec
from sandloom.execs.service import Execs
from sandloom.execs.states import ExecStatus
from sandloom.ids import ExecKey
from sandloom.reclaim.watcher import LeaseWatcher
from sandloom.telemetry import get_logger
from workers.commands import Commands
from workers.direct import DirectExecs
from workers.identity import Identity
from workers.lanes import CommandLane
from workers.results import Results

log = get_logger("sandloom.workers.sweep")

SWEEP_SECONDS = 3.0
Suspect = tuple[ExecKey, int]


class Sweeper:
    """Looks every few seconds, at the start, and when ``wake`` says that a slot became free."""

    def __init__(
        self,
        identity: Identity,
        execs: Execs,
        commands: Commands,
        lane: CommandLane,
        direct: DirectExecs,
        watcher: LeaseWatcher,
        results: Results,
        looks: Sequence[Callable[[], None]],
    ) -> None:
        self._identity = identity
        self._execs = execs
        self._commands = commands
        self._lane = lane
        self._results = results
        self._looks = (self.sweep, watcher.observe, direct.cancel_revoked, *looks)
        self._due = threading.Event()
        self._stopped = False
        self._suspects: frozenset[Suspect] = frozenset()
        self._thread = threading.Thread(target=self._serve, name="sweep", daemon=True)

    def start(self) -> None:
        self._due.set()
        self._thread.start()

    def wake(self) -> None:
        self._due.set()

    def stop(self) -> None:
        self._stopped = True
        self._due.set()
        self._thread.join(5.0)

    def _serve(self) -> None:
        while True:
            self._due.wait(SWEEP_SECONDS)
            self._due.clear()
            if self._stopped:
                return
            for look in self._looks:
                self._safely(look)

    def _safely(self, look: Callable[[], None]) -> None:
        try:
            look()
        except SandloomError as error:
            log.warning("sweep failed", code=error.code)
        except Exception:
            log.exception("sweep failed")

    def sweep(self) -> None:
        """Rows first, then what this process knows: a row that ended meanwhile refuses whatever follows."""
        rows = self._execs.open_for(self._identity.worker_id, self._identity.epoch)
        suspects = set()
        for row in rows:
            if row.status is ExecStatus.QUEUED:
                self._lane.submit(row.key, partial(self._run, row))
            elif row.cancel_us is not None and self._commands.cancel(row.key):
                continue
            elif self._commands.find(row.key) is None:
                suspects.add((row.key, row.generation))
        self._end_orphans(suspects)

    def _run(self, row: OpenExec) -> None:
        record = self._commands.run(row.key, row.generation)
        if record is not None:
            # Its own task is gone with an earlier life of the worker, or comes later and then finds the same record.
            self._results.complete(row.key, record.task_id)

    def _end_orphans(self, suspects: set[Suspect]) -> None:
        """RUNNING rows that no thread runs, seen twice: the first time their thread may just be ending them."""
        for key, _generation in suspects & self._suspects:
            record = self._execs.get(key)
            if record.status is ExecStatus.RUNNING and self._commands.find(key) is None:
                self._commands.finish_orphan(key, record)
        self._suspects = frozenset(suspects)
