"""File calls share a sandbox; connect, release and suspend have it alone."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from sandloom.clock import monotonic_seconds
from sandloom.errors import FilePathLocked, SuspendBusy
from sandloom.ids import SandboxKey

#: A lifecycle call waits this long for file calls to end; one that streams on will find its tree gone.
DRAIN_SECONDS = 10.0


@dataclass(slots=True)
class _Gate:
    shared: int = 0
    exclusive: int = 0
    busy: bool = False


class Gates:
    """One gate per sandbox that is in use; thread-safe."""

    def __init__(self) -> None:
        self._gates: dict[SandboxKey, _Gate] = {}
        self._changed = threading.Condition()

    @contextmanager
    def shared(self, key: SandboxKey) -> Iterator[None]:
        """Raises FilePathLocked while a lifecycle call holds or awaits the sandbox."""
        with self._changed:
            gate = self._gates.setdefault(key, _Gate())
            if gate.exclusive:
                raise FilePathLocked("The sandbox is being connected, suspended or released; repeat the call.")
            gate.shared += 1
        try:
            yield
        finally:
            with self._changed:
                gate.shared -= 1
                self._leave(key, gate)

    @contextmanager
    def exclusive(self, key: SandboxKey) -> Iterator[None]:
        """Waits for other lifecycle calls, and within bounds for file calls; new ones are refused meanwhile."""
        with self._changed:
            gate = self._gates.setdefault(key, _Gate())
            gate.exclusive += 1
            until = monotonic_seconds() + DRAIN_SECONDS
            while gate.busy or (gate.shared and monotonic_seconds() < until):
                self._changed.wait(1.0)
            gate.busy = True
        try:
            yield
        finally:
            with self._changed:
                gate.busy = False
                gate.exclusive -= 1
                self._leave(key, gate)

    @contextmanager
    def alone(self, key: SandboxKey) -> Iterator[None]:
        """Has the sandbox like ``exclusive``, without waiting. Raises SuspendBusy while anybody is inside."""
        with self._changed:
            gate = self._gates.get(key)
            if gate is not None:
                raise SuspendBusy
            gate = self._gates[key] = _Gate(exclusive=1, busy=True)
        try:
            yield
        finally:
            with self._changed:
                gate.busy = False
                gate.exclusive -= 1
                self._leave(key, gate)

    def _leave(self, key: SandboxKey, gate: _Gate) -> None:
        if not gate.shared and not gate.exclusive:
            self._gates.pop(key, None)
        self._changed.notify_all()
