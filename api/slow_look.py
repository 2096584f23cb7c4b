"""A look at the rows of every command that this process watches, now and then: a head that the bus lost is found so.

One look for all of them: how often a process asks the database about quiet streams does not grow with their number.
"""

from __future__ import annotations

import threading

from sandloom.contracts.ports import Bus
from sandloom.errors import SandloomError
from sandloom.execs.service import Execs
from sandloom.telemetry import get_logger

log = get_logger("sandloom.api.slow_look")

INTERVAL_SECONDS = 2.0


class SlowLook:
    """A thread from the constructor until ``close``."""

    def __init__(self, execs: Execs, bus: Bus, interval_seconds: float = INTERVAL_SECONDS) -> None:
        self._execs = execs
        self._bus = bus
        self._interval_seconds = interval_seconds
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="slow-look", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        self._thread.join(5.0)

    def _run(self) -> None:
        while not self._closing.wait(self._interval_seconds):
            try:
                self._bus.refresh(self._execs.heads)
            except SandloomError as error:
                log.debug("the rows could not be read", code=error.code)
            except Exception:
                log.exception("the rows of watched commands could not be read")
