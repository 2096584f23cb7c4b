"""A TCP proxy on loopback that puts distance between a client and a server, without holding back how much may pass."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import random
import socket
import threading
import time
from collections.abc import Callable


class DelayingProxy:
    """Forwards ``127.0.0.1:port`` to ``target_port`` until ``close``.

    What the server sends arrives ``delay_seconds`` later, more or less by ``jitter_seconds``, in order: that is the
    distance of a round trip. Chunks that follow each other wait beside each other, not one after the other.
    """

    def __init__(self, target_port: int, delay_seconds: float, jitter_seconds: float) -> None:
        self._target_port = target_port
        self._delay_seconds = delay_seconds
        self._jitter_seconds = jitter_seconds
        # The same numbers for each run.
        self._random = random.Random(0)
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port = int(self._listener.getsockname()[1])
        self._later = _Later()
        threading.Thread(target=self._accept, name="delaying-proxy", daemon=True).start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._later.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self._target_port))
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for pump in (self._at_once, self._delayed):
                threading.Thread(target=pump, args=(client, server), daemon=True).start()

    def _at_once(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while chunk := client.recv(65536):
                server.sendall(chunk)
        with contextlib.suppress(OSError):
            server.shutdown(socket.SHUT_WR)

    def _delayed(self, client: socket.socket, server: socket.socket) -> None:
        due = 0.0
        with contextlib.suppress(OSError):
            while chunk := server.recv(65536):
                wait = self._delay_seconds + self._random.uniform(-self._jitter_seconds, self._jitter_seconds)
                due = max(due, time.monotonic() + wait)
                self._later.call(due, lambda chunk=chunk: client.sendall(chunk))  # type: ignore[misc]
        self._later.call(due, lambda: client.shutdown(socket.SHUT_RDWR))


class _Later:
    """Calls at their time, on one thread."""

    def __init__(self) -> None:
        self._calls: list[tuple[float, int, Callable[[], object]]] = []
        self._numbers = itertools.count()
        self._changed = threading.Condition()
        self._closed = False
        threading.Thread(target=self._run, name="delaying-proxy-clock", daemon=True).start()

    def call(self, at_seconds: float, what: Callable[[], object]) -> None:
        with self._changed:
            heapq.heappush(self._calls, (at_seconds, next(self._numbers), what))
            self._changed.notify()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._closed and (not self._calls or self._calls[0][0] > time.monotonic()):
                    self._changed.wait(self._calls[0][0] - time.monotonic() if self._calls else None)
                if self._closed:
                    return
                what = heapq.heappop(self._calls)[2]
            with contextlib.suppress(OSError):
                what()
