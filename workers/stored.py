"""What the files of this node's sandboxes take, measured now and then for the usage of their tenants."""

from __future__ import annotations

import threading

from sandloom.clock import monotonic_seconds
from sandloom.errors import SandloomError
from sandloom.execution.disk_meter import DiskMeter
from sandloom.execution.spec import BudgetsUnavailable
from sandloom.execution.workspace import WorkspaceRoot
from sandloom.ids import SandboxKey
from sandloom.sandboxes.suspension import Suspensions
from sandloom.telemetry import get_logger
from sandloom.tenants.usage import Usage

log = get_logger("sandloom.workers.stored")

#: Who is new is measured after at most this.
LOOK_SECONDS = 60.0
#: A tree for which this is not enough is measured at the next look.
COUNT_SECONDS = 60.0


class StoredBytes:
    """One sandbox after the other, each again after ``interval_seconds``, on a thread and in a process of its own."""

    def __init__(
        self, worker_id: str, root: WorkspaceRoot, suspensions: Suspensions, usage: Usage, interval_seconds: float
    ) -> None:
        self._worker_id = worker_id
        self._root = root
        self._suspensions = suspensions
        self._usage = usage
        self._interval_seconds = interval_seconds
        self._measured: dict[SandboxKey, float] = {}
        self._meter = DiskMeter(lambda name, count: None, lambda: None)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="stored", daemon=True)

    def start(self) -> None:
        """Nothing is measured where the interval is 0."""
        if self._interval_seconds > 0:
            self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._meter.close()
        if self._thread.is_alive():
            self._thread.join(5.0)

    def _serve(self) -> None:
        while not self._stopped.wait(LOOK_SECONDS):
            try:
                self.look()
            except (SandloomError, BudgetsUnavailable) as error:
                log.warning("files were not measured", reason=str(error))
            except Exception:
                log.exception("files were not measured")

    def look(self) -> None:
        """Measure what is due. Raises Unavailable, BudgetsUnavailable."""
        here = [route.key for route in self._suspensions.staying(self._worker_id)]
        known = {key: self._measured[key] for key in here if key in self._measured}
        self._measured = known
        for key in here:
            began = monotonic_seconds()
            if self._stopped.is_set() or began - known.get(key, -self._interval_seconds) < self._interval_seconds:
                continue
            found = self._meter.count(self._root.directories(key).all, (None, None), COUNT_SECONDS)
            if found is not None and not found.problem:
                self._usage.note_stored(key, found.byte_count)
                known[key] = began
