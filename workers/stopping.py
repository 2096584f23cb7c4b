"""TERM and INT: the first asks for a clean end, the second for an end at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable


class StopSignals:
    """Handlers of the main thread: the first signal sets ``asked``, each further one calls ``on_second``."""

    def __init__(self, asked: threading.Event, on_second: Callable[[], None] = lambda: None) -> None:
        self._asked = asked
        self._on_second = on_second

    def install(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._handle)

    def _handle(self, number: int, frame: object) -> None:
        if self._asked.is_set():
            self._on_second()
        self._asked.set()


def wait(event: threading.Event) -> None:
    """Wait in the main thread; signals are handled meanwhile."""
    while not event.wait(3600.0):
        pass
