"""The worker's side of the spawner process: start, spawn, lease, death."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import threading
from collections.abc import Callable, Sequence

from sandloom.execution import companion
from sandloom.execution.native import library
from sandloom.execution.spawner import wire
from sandloom.execution.spec import SpawnerUnavailable

_SEND_TIMEOUT_SECONDS = 10
_BURIAL_SECONDS = 30


class Incarnation:
    """One life of the spawner process. ``buried`` is set when it has died and what it left has been killed."""

    def __init__(self, process: subprocess.Popen[bytes], sock: socket.socket) -> None:
        self.process = process
        self.sock = sock
        self.buried = threading.Event()


class Spawner:
    """Owns the spawner process of this worker; a dead one is buried and replaced at the next command.

    ``keep_fds`` stay open in it (such as the lock of the workspace root), never in a command. ``clean_up`` kills what a
    killed spawner may have left; it runs before any handle of that spawner completes. ``on_death`` is told afterwards.
    ``native``: whether to use the compiled helper where it is built; commands do the same without. Thread-safe.
    """

    def __init__(
        self,
        *,
        keep_fds: Sequence[int] = (),
        clean_up: Callable[[], object] = lambda: None,
        on_death: Callable[[int], object] = lambda returncode: None,
        native: bool = True,
    ) -> None:
        self._keep_fds = tuple(keep_fds)
        self._clean_up = clean_up
        self._on_death = on_death
        self._library = library.find() if native else None
        self._lock = threading.Lock()
        self._incarnation: Incarnation | None = None
        self._deadline: float | None = None
        self._closed = False

    @property
    def alive(self) -> bool:
        current = self._incarnation
        return current is not None and current.process.poll() is None

    @property
    def pid(self) -> int | None:
        current = self._incarnation
        return None if current is None else current.process.pid

    @property
    def native(self) -> bool:
        """Whether the compiled helper is built here and wanted."""
        return self._library is not None

    def start(self) -> None:
        """Start the process now instead of at the first command. Raises ``SpawnerUnavailable``."""
        self._current()

    def spawn(self, body: bytes, fds: list[int], stdin_fd: int | None) -> Incarnation:
        """Send one command; ``fds`` are its socket, stdout and stderr. Raises ``SpawnerUnavailable``.

        The request may have been sent to a spawner that dies meanwhile: then its socket ends without facts.
        """
        for attempt in range(2):
            current = self._current()
            try:
                wire.send_spawn(current.sock, body, fds, stdin_fd)
                return current
            except OSError as error:
                # Its socket is closed at the end of its burial, which may be now.
                if not isinstance(error, ConnectionError) and current.sock.fileno() >= 0:
                    raise SpawnerUnavailable(f"the spawner takes no command: {error}") from error
                # It died unnoticed and took nothing: the next one may have the request.
                if attempt or not current.buried.wait(_BURIAL_SECONDS):
                    raise SpawnerUnavailable(f"the spawner dies: {error}") from error
        raise AssertionError("unreachable")

    def lease(self, deadline_boottime_seconds: float) -> None:
        """Let commands live until CLOCK_BOOTTIME reaches the deadline; then the spawner ends them by itself.

        Without any call there is no deadline. Never raises: a spawner that cannot be told fences itself all the same.
        """
        # Without the lock: the heartbeat must not wait for the burial of a dead spawner.
        self._deadline = deadline_boottime_seconds
        current = self._incarnation
        if current is not None:
            with contextlib.suppress(OSError):
                current.sock.send(wire.LEASE + wire.pack(deadline_boottime_seconds))

    def close(self, timeout_seconds: float = 10) -> None:
        """End every command at once and the process with them. Idempotent."""
        with self._lock:
            self._closed = True
            current = self._incarnation
        if current is None:
            return
        # shutdown reaches the spawner also while another thread is inside a call on the socket
        with contextlib.suppress(OSError):
            current.sock.shutdown(socket.SHUT_RDWR)
        if not current.buried.wait(timeout_seconds):
            current.process.kill()
            current.buried.wait(timeout_seconds)

    def _current(self) -> Incarnation:
        with self._lock:
            if self._closed:
                raise SpawnerUnavailable("the spawner is closed")
            current = self._incarnation
            if current is not None and current.process.poll() is not None:
                # What the dead one left must be gone before a new one can hand out the same uids.
                current.buried.wait()
                current = None
            if current is None:
                current = self._start()
                self._incarnation = current
            return current

    def _start(self) -> Incarnation:
        library_path = str(self._library or "")
        try:
            ours, process = companion.start(
                "spawner", library_path, send_seconds=_SEND_TIMEOUT_SECONDS, keep_fds=self._keep_fds
            )
        except OSError as error:
            raise SpawnerUnavailable(f"cannot start the spawner: {error}") from error
        if self._deadline is not None:
            ours.send(wire.LEASE + wire.pack(self._deadline))
        incarnation = Incarnation(process, ours)
        threading.Thread(target=self._watch, args=(incarnation,), name="spawner-watch", daemon=True).start()
        return incarnation

    def _watch(self, incarnation: Incarnation) -> None:
        returncode = incarnation.process.wait()
        try:
            if returncode != 0:
                _await_end(incarnation.sock)
                self._clean_up()
        finally:
            incarnation.sock.close()
            incarnation.buried.set()
        if returncode != 0:
            self._on_death(returncode)


def _await_end(sock: socket.socket) -> None:
    """Wait until whatever a killed spawner had just forked has become its command, which clean-up finds, or is gone.

    Until then it holds the other end of ``sock``. Bounded by the socket's timeout.
    """
    with contextlib.suppress(OSError):
        while sock.recv(1):
            pass
