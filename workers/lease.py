"""The node's lease: renewed by a thread of its own, and handed on to the spawner, which ends commands without it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from sandloom.clock import boottime_seconds
from sandloom.errors import SandloomError
from sandloom.execution.process import Spawner
from sandloom.fleet.records import STOPPING
from sandloom.fleet.service import Fleet
from sandloom.settings import Settings
from sandloom.telemetry import get_logger
from workers.identity import Identity

log = get_logger("sandloom.workers.lease")

RETRY_SECONDS = 1.0


class LeaseKeeper:
    """``on_lapsed``: the lease goes on after a time in which others could take what sleeps here for their own.

    ``sent_seconds``: CLOCK_BOOTTIME when the acknowledged registration was sent; the fence counts from sendings."""

    def __init__(
        self,
        identity: Identity,
        fleet: Fleet,
        spawner: Spawner,
        settings: Settings,
        load: Callable[[], Mapping[str, Any]],
        short_of: Callable[[], str | None],
        on_superseded: Callable[[], None],
        on_lapsed: Callable[[], None],
        sent_seconds: float,
    ) -> None:
        self._identity = identity
        self._fleet = fleet
        self._spawner = spawner
        self._settings = settings
        self._load = load
        self._short_of = short_of
        self._closing = False
        self._on_superseded = on_superseded
        self._on_lapsed = on_lapsed
        self._stop = threading.Event()
        self._fence_seconds = 0.0
        self._lapses_seconds = float("inf")
        self._thread = threading.Thread(target=self._serve, name="lease", daemon=True)
        self._acknowledged(sent_seconds)

    def start(self) -> None:
        self._thread.start()

    def close_to_sandboxes(self) -> None:
        """No new sandboxes from now on: the worker is about to end."""
        self._closing = True
        try:
            self._renew()
        except SandloomError as error:
            log.warning("sandboxes may still be placed here", code=error.code)

    def stop(self) -> None:
        self._stop.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(5.0)

    @property
    def passed(self) -> bool:
        """Whether the spawner has ended, or is about to end, every command by itself."""
        return boottime_seconds() >= self._fence_seconds

    def _acknowledged(self, sent_seconds: float) -> None:
        had_lapsed = boottime_seconds() > self._lapses_seconds
        self._lapses_seconds = sent_seconds + self._settings.heartbeat_ttl_seconds
        self._fence_seconds = sent_seconds + self._settings.fence_after_seconds
        self._spawner.lease(self._fence_seconds)
        if had_lapsed:
            self._on_lapsed()

    def _serve(self) -> None:
        pause = float(self._settings.heartbeat_interval_seconds)
        while not self._stop.wait(pause):
            pause = float(self._settings.heartbeat_interval_seconds)
            sent_seconds = boottime_seconds()
            try:
                renewed = self._renew()
            except SandloomError as error:
                log.warning("lease not renewed", code=error.code, fence_passed=self.passed)
                pause = min(pause, RETRY_SECONDS)
                continue
            except Exception:
                log.exception("lease not renewed")
                pause = min(pause, RETRY_SECONDS)
                continue
            if not renewed:
                log.error("superseded: another life of this worker has begun, or it was declared lost")
                self._on_superseded()
                return
            self._acknowledged(sent_seconds)

    def _renew(self) -> bool:
        identity = self._identity
        short_of = STOPPING if self._closing else self._short_of()
        return self._fleet.renew(
            identity.worker_id, identity.epoch, self._settings.heartbeat_ttl_seconds, self._load(), short_of
        )
