"""Celery's consumer, kept running: whatever ends it, lanes and commands go on."""

from __future__ import annotations

import logging
import socket
import threading
from typing import Any

from celery.worker import WorkController, state

from sandloom.telemetry import get_logger
from workers.app import WorkerApp
from workers.consumer import restrict_remote_control

log = get_logger("sandloom.workers.front")

#: ``should_stop`` and ``should_terminate`` are switches of the whole process.
celery_state: Any = state
#: They write lines for every message, whose work the rows record already.
QUIET_LOGGERS = ("celery.worker.strategy", "celery.app.trace", "celery.beat")
RESTART_SECONDS = 1.0
STOP_SECONDS = 20.0


class CeleryFront:
    """One consumer in a thread. Celery keeps the wish to stop in a global, so there is one front per process."""

    def __init__(self, app: WorkerApp, name: str) -> None:
        restrict_remote_control()
        for logger in QUIET_LOGGERS:
            logging.getLogger(logger).setLevel(logging.WARNING)
        app.finalize()
        app.set_default()
        self._app = app
        self._hostname = f"{name}@{socket.gethostname()}"
        self._controller: Any = None
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self.consuming = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="consumer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> bool:
        """Take no more messages; whether the consumer ended in time."""
        with self._lock:
            self._stopping.set()
            celery_state.should_stop = 0
        self._wake()
        self._thread.join(STOP_SECONDS)
        return not self._thread.is_alive()

    def reconnect(self) -> None:
        """End the consumer, which then starts again with new connections; for one that hears nothing any more."""
        with self._lock:
            if self._stopping.is_set():
                return
            celery_state.should_stop = 0
        self._wake()

    def _wake(self) -> None:
        """Make the consumer's loop turn once, so that it sees that it should stop."""
        hub = getattr(self._controller, "hub", None)
        if hub is not None:
            hub.call_soon(lambda: None)
            return
        try:
            # For loops without a hub; they turn once more when they have seen it.
            for _ in range(2):
                self._app.control.broadcast("clock", destination=[self._hostname])
        except Exception:
            log.info("the consumer could not be woken")

    def _serve(self) -> None:
        while True:
            with self._lock:
                if self._stopping.is_set():
                    return
                celery_state.should_stop = celery_state.should_terminate = None
            try:
                self._controller = self._new_controller()
                self._controller.start()
            except BaseException:
                log.exception("consumer failed")
            self.consuming.clear()
            if not self._stopping.wait(RESTART_SECONDS):
                log.error("consumer ended by itself; starting it again")

    def _new_controller(self) -> Any:
        return WorkController(
            app=self._app,
            hostname=self._hostname,
            ready_callback=lambda consumer: self.consuming.set(),
            # Other workers' clocks and revoked tasks matter to nobody here, and waiting for them delays the start.
            without_mingle=True,
            without_gossip=True,
        )
