"""The worker's side of the meter process: start, ask, hear, start again."""

from __future__ import annotations

import contextlib
import itertools
import json
import socket
import subprocess
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sandloom.execution import companion
from sandloom.execution.spec import BudgetsUnavailable

_MAX_DATAGRAM_BYTES = 64 * 1024
_SEND_SECONDS = 5


@dataclass(frozen=True, slots=True)
class Count:
    """What a pass found. ``over``: it ended at a bound, there may be more. ``began``: of ``time.monotonic()``."""

    byte_count: int
    inodes: int
    over: bool = False
    problem: str = ""
    began: float = 0.0


Bounds = tuple[int | None, int | None]


class DiskMeter:
    """Owns the process. ``on_count(name, count)`` hears of watched sandboxes, ``on_restart`` that all must be watched
    again; both on the meter's thread. Thread-safe. Nothing runs before the first call."""

    def __init__(self, on_count: Callable[[str, Count], None], on_restart: Callable[[], None]) -> None:
        self._on_count = on_count
        self._on_restart = on_restart
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False
        self._numbers = itertools.count(1)
        self._asked: dict[int, _Asked] = {}

    def count(self, paths: Sequence[str], bounds: Bounds, timeout_seconds: float) -> Count | None:
        """A count now; ``None`` when it takes longer. Raises ``BudgetsUnavailable``."""
        number, asked = next(self._numbers), _Asked()
        self._asked[number] = asked
        try:
            self._send({"do": "count", "id": number, "paths": list(paths), "bounds": bounds})
            asked.answered.wait(timeout_seconds)
            return asked.count
        finally:
            del self._asked[number]

    def watch(self, name: str, paths: Sequence[str], bounds: Bounds) -> None:
        """Count again and again while commands run, until ``rest``. Raises ``BudgetsUnavailable``."""
        self._send({"do": "watch", "name": name, "paths": list(paths), "bounds": bounds})

    def look(self, name: str, paths: Sequence[str], bounds: Bounds) -> None:
        """Count once, soon: something has changed."""
        with contextlib.suppress(BudgetsUnavailable):
            self._send({"do": "look", "name": name, "paths": list(paths), "bounds": bounds})

    def rest(self, name: str) -> None:
        """No command runs any more: one last count."""
        with contextlib.suppress(BudgetsUnavailable):
            self._send({"do": "rest", "name": name})

    def forget(self, name: str) -> None:
        if self._socket is not None:
            with contextlib.suppress(BudgetsUnavailable):
                self._send({"do": "forget", "name": name})

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def close(self) -> None:
        with self._lock:
            self._closed = True
            sock, process = self._socket, self._process
        if sock is not None and process is not None:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            process.wait()

    def _send(self, request: dict[str, Any]) -> None:
        data = json.dumps(request).encode()
        for attempt in range(2):
            sock = self._current()
            try:
                sock.send(data)
                return
            except OSError as error:
                # One that has died has its socket closed, which may be now.
                if attempt or not (isinstance(error, ConnectionError) or sock.fileno() < 0):
                    raise BudgetsUnavailable(f"the disk meter takes no request: {error}") from error
                self._ended(sock)

    def _current(self) -> socket.socket:
        with self._lock:
            if self._closed:
                raise BudgetsUnavailable("the disk meter is closed")
            if self._socket is None:
                try:
                    self._socket, self._process = companion.start("meter", send_seconds=_SEND_SECONDS)
                except OSError as error:
                    raise BudgetsUnavailable(f"cannot start the disk meter: {error}") from error
                threading.Thread(
                    target=self._listen, args=(self._socket, self._process), name="disk-meter", daemon=True
                ).start()
            return self._socket

    def _listen(self, sock: socket.socket, process: subprocess.Popen[bytes]) -> None:
        with contextlib.suppress(OSError):
            while data := _receive(sock):
                self._hear(json.loads(data))
        process.wait()
        self._ended(sock)
        sock.close()
        for asked in list(self._asked.values()):
            asked.answered.set()
        if not self._closed:
            self._on_restart()

    def _ended(self, sock: socket.socket) -> None:
        with self._lock:
            if self._socket is sock:
                self._socket = self._process = None

    def _hear(self, answer: dict[str, Any]) -> None:
        count = Count(answer["bytes"], answer["inodes"], answer["over"], answer["problem"], answer["began"])
        if "name" in answer:
            self._on_count(answer["name"], count)
        elif (asked := self._asked.get(answer["id"])) is not None:
            asked.count = count
            asked.answered.set()


class _Asked:
    def __init__(self) -> None:
        self.answered = threading.Event()
        self.count: Count | None = None


def _receive(sock: socket.socket) -> bytes:
    while True:
        # The timeout of the socket is for those who send.
        with contextlib.suppress(TimeoutError):
            return sock.recv(_MAX_DATAGRAM_BYTES)
