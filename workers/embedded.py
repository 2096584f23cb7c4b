"""The whole service in one process: API, worker node and beat over SQLite, an in-process broker and bus."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sandloom.db import open_checked_database
from sandloom.errors import SettingsInvalid, WorkerIdInUse
from sandloom.execution.locks import LockHeld, LockUnusable, RootLock
from sandloom.settings import Settings
from sandloom.streams import open_bus
from sandloom.telemetry import get_logger
from workers.app import create_celery
from workers.beat import Beat
from workers.config import maintenance_queues
from workers.node import Node
from workers.services import open_services
from workers.stopping import StopSignals, wait

log = get_logger("sandloom.workers.embedded")

CONSUMING_SECONDS = 15.0
EXIT_SUPERSEDED = 1


def run(settings: Settings, ready: Callable[[], None] | None = None) -> int:
    """Serve until TERM. ``ready`` is called once requests are answered. Raises what stops a start."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(_only_service_of(settings.data_dir))
        db = open_checked_database(settings)
        stack.callback(db.dispose)
        bus = open_bus(settings.bus_url, settings.broker_namespace)
        stack.callback(bus.close)
        services = open_services(settings, db=db, bus=bus)
        stack.callback(services.close)
        node = Node(settings, services)
        StopSignals(node.ended, node.hurry).install()
        node.start()
        stack.callback(node.stop)
        node.wait_consuming(CONSUMING_SECONDS)
        beat = Beat(create_celery(settings, maintenance_queues()))
        beat.start()
        stack.callback(beat.stop)
        server = _api(settings, db, bus, services.publisher)
        server.start()
        stack.callback(server.close)
        log.info("serving", url=f"http://{settings.host}:{server.port}")
        if ready is not None:
            ready()
        wait(node.ended)
    return EXIT_SUPERSEDED if node.superseded.is_set() else 0


def _only_service_of(data_dir: Path) -> RootLock:
    """Before anything is read or migrated: a second service must not touch the first one's database."""
    try:
        return RootLock.acquire(data_dir / "service.lock")
    except LockHeld as error:
        raise WorkerIdInUse(f"Another service runs over {data_dir}; stop it, or give this one its own.") from error
    except LockUnusable as error:
        raise SettingsInvalid(f"SANDBOX_DATA_DIR: {error}") from error


def _api(settings: Settings, db: Any, bus: Any, publisher: Any) -> Any:
    """The API of this checkout, by name: neither side imports the other."""
    application = importlib.import_module("api.app")
    services = importlib.import_module("api.services").assemble(settings, db, bus, publisher)
    return importlib.import_module("api.embedded").serve(application.create_app(services), settings)
