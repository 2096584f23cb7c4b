"""A worker that the operator wants empty: what is quiet moves out, what runs is let finish."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

from sandloom.clock import monotonic_seconds
from sandloom.errors import NoWorkerAvailable, SandboxSuspended, SandloomError, SnapshotUnavailable, SuspendBusy
from sandloom.fleet.service import Fleet
from sandloom.ids import SandboxKey
from sandloom.sandboxes.records import Route
from sandloom.sandboxes.states import SandboxStatus
from sandloom.sandboxes.suspension import Suspensions
from sandloom.telemetry import get_logger
from workers.homes import Homes
from workers.identity import Identity
from workers.suspender import Suspender

log = get_logger("sandloom.workers.drainer")

#: Archives are made by so many threads at once.
THREADS = 2
#: A sandbox that could not move out is tried again after so long.
AGAIN_SECONDS = 30.0
_ASLEEP = SandboxStatus.SUSPENDED


class Drainer:
    """``look`` every few seconds. ``held_by``: the codes of what keeps sandboxes here, and how many each of them."""

    def __init__(
        self, identity: Identity, fleet: Fleet, suspensions: Suspensions, suspender: Suspender, homes: Homes
    ) -> None:
        self._identity = identity
        self._fleet = fleet
        self._suspensions = suspensions
        self._suspender = suspender
        self._homes = homes
        self._busy = threading.Lock()
        self._stopping = False
        self._failed: dict[SandboxKey, tuple[float, str]] = {}
        self.held_by: Mapping[str, int] = {}

    def look(self, submit: Callable[[Callable[[], None]], object]) -> None:
        """Have a pass done elsewhere while the worker is to be empty; one at a time."""
        if self._busy.locked():
            return
        if not self._fleet.is_draining(self._identity.worker_id):
            self.held_by = {}
            self._failed.clear()
            return
        submit(self._pass)

    def stop(self) -> None:
        """What is being archived is finished; nothing more begins."""
        self._stopping = True

    def _pass(self) -> None:
        if not self._busy.acquire(blocking=False):
            return
        try:
            staying = self._suspensions.staying(self._identity.worker_id)
            with ThreadPoolExecutor(THREADS, thread_name_prefix="drain") as pool:
                held = Counter(code for code in pool.map(self._move_out, staying) if code is not None)
            if held != self.held_by:
                log.info("drain", moved_out=len(staying) - held.total(), **held)
            self.held_by = held
        finally:
            self._busy.release()

    def _move_out(self, route: Route) -> str | None:
        """The code of what keeps it here; None: nothing does."""
        if route.storage_mode == "shared" and route.status is _ASLEEP:
            return None  # within reach of every worker over the root
        if route.status is SandboxStatus.RUNNING or self._stopping:
            return SuspendBusy.code
        if not self._suspender.can_send_away:
            return SnapshotUnavailable.code
        again_seconds, code = self._failed.get(route.key, (0.0, ""))
        if monotonic_seconds() < again_seconds:
            return code
        try:
            self._send(route)
        except SandloomError as error:
            if not isinstance(error, SuspendBusy):
                log.warning("not moved out", sandbox_id=route.key.sandbox_id, code=error.code, reason=error.detail)
                self._failed[route.key] = monotonic_seconds() + AGAIN_SECONDS, error.code
            return error.code
        self._failed.pop(route.key, None)
        return None

    def _send(self, route: Route) -> None:
        key = route.key
        if route.status in (SandboxStatus.ASSIGNED, SandboxStatus.READY):
            if route.status is SandboxStatus.ASSIGNED:
                route = self._homes.connect(key, route.generation)
            self._suspender.suspend(key, route.generation, route.last_active_us, away=True)
        elif route.status is not _ASLEEP:
            raise SuspendBusy  # being suspended or released by somebody else
        if route.storage_mode == "shared":
            self._move_on(key)
        else:
            self._suspender.send_away(key)

    def _move_on(self, key: SandboxKey) -> None:
        """To a neighbour over the root that has a slot; else it sleeps, and wakes there when somebody wants it."""
        try:
            self._suspensions.begin_resume(key, "drain", elsewhere=True)
        except (NoWorkerAvailable, SandboxSuspended):
            log.info("no neighbour has a slot; it sleeps", sandbox_id=key.sandbox_id)
