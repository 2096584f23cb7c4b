"""Periodic maintenance as a process: Celery beat, and a consumer of what it sends.

Maintenance goes on while every worker is dead; two of these processes at once do no harm.
"""

from __future__ import annotations

import threading
from typing import Any

from celery.beat import Scheduler, SchedulingError

from sandloom.errors import SandloomError
from sandloom.reclaim.watcher import LeaseWatcher
from sandloom.settings import Settings
from sandloom.telemetry import get_logger
from workers.app import WorkerApp, create_celery
from workers.config import maintenance_queues
from workers.front import CeleryFront
from workers.reception import ControlLanes, ControlReception, Lane
from workers.services import OBSERVE_SECONDS, open_services
from workers.stopping import StopSignals, wait
from workers.tasks import maintenance_lanes, register_maintenance

log = get_logger("sandloom.workers.beat")


class PatientScheduler(Scheduler):
    """Connects anew once something could not be sent. Nothing is sent twice, so nobody else would notice that a
    connection is broken: a broker that was restarted would never hear of this process again."""

    def apply_async(self, *arguments: Any, **options: Any) -> Any:
        try:
            return super().apply_async(*arguments, **options)
        except SchedulingError:
            self.close()
            raise


class Beat:
    """Celery's scheduler in a thread; a broker that is away only makes it try again."""

    def __init__(self, app: WorkerApp) -> None:
        self._app = app
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="beat", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(10.0)

    def _serve(self) -> None:
        while not self._stopping.is_set():
            try:
                self._schedule()
            except Exception:
                log.exception("beat failed")
            self._stopping.wait(1.0)

    def _schedule(self) -> None:
        """Until the end; celery's ``Service`` would sleep through the wish for it."""
        # In memory: which task is due is not worth a file, since every task is safe to miss and to repeat.
        scheduler = PatientScheduler(self._app)
        try:
            while not self._stopping.wait(scheduler.tick()):
                pass
        finally:
            scheduler.close()


class Observer:
    """Watches the leases, so that this process may judge which have lapsed."""

    def __init__(self, watcher: LeaseWatcher) -> None:
        self._watcher = watcher
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="observer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(10.0)

    def _serve(self) -> None:
        while not self._stopping.wait(OBSERVE_SECONDS):
            try:
                self._watcher.observe()
            except SandloomError as error:
                log.warning("leases not seen", code=error.code)
            except Exception:
                log.exception("leases not seen")


def run(settings: Settings) -> int:
    """Until TERM. Raises what stops a start."""
    services = open_services(settings)
    app = create_celery(settings, maintenance_queues())
    lanes = ControlLanes((Lane.LIFECYCLE,))
    app.reception = ControlReception(lanes, maintenance_lanes())
    register_maintenance(app, services.maintenance(app))
    ended = threading.Event()
    StopSignals(ended).install()
    parts = (Observer(services.watcher), CeleryFront(app, "beat"), Beat(app))
    for part in parts:
        part.start()
    wait(ended)
    for part in reversed(parts):
        part.stop()
    lanes.close(10.0)
    services.close()
    return 0
