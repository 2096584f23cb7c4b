"""A TCP proxy on loopback that misbehaves on demand: late, frozen, cut, or losing the answer to a COMMIT."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from types import TracebackType

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class Proxy:
    """Forwards ``127.0.0.1:port`` to ``target_port``; running from the constructor until ``close()``.

    >>> proxy = Proxy(server.port); url = url.replace(f":{server.port}/", f":{proxy.port}/")
    """

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._lock = threading.Lock()
        self._links: set[_Link] = set()
        self._flowing = threading.Event()
        self._flowing.set()
        self._delay_seconds = 0.0
        self._refusing = False
        self._pattern: bytes | None = None
        self.dropped = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, name=f"proxy {self.port}", daemon=True).start()

    def delay(self, seconds: float) -> None:
        """Every chunk of the server's answers is held back for so long; 0 ends it."""
        self._delay_seconds = seconds

    def freeze(self) -> None:
        """Connections stay open and nothing passes, as on a network that swallows packets."""
        self._flowing.clear()

    def thaw(self) -> None:
        self._flowing.set()

    def cut(self) -> None:
        """Resets every connection and refuses new ones until ``restore``."""
        self._refusing = True
        self.reset_connections()

    def restore(self) -> None:
        self._refusing = False

    def reset_connections(self) -> None:
        """Resets every connection of the moment; new ones are served."""
        with self._lock:
            links = list(self._links)
        for link in links:
            link.reset()
        # A connection is reset once nobody reads from it any more; who is frozen keeps it.
        for thread in [thread for link in links for thread in link.threads]:
            thread.join(10 if self._flowing.is_set() else 0)

    def drop_answer_to(self, pattern: bytes = b"COMMIT") -> None:
        """Arms it once: the next client chunk that contains ``pattern`` reaches the server, its answer is swallowed
        and the client's connection reset. ``dropped`` is set when the server had answered.
        """
        self.dropped.clear()
        with self._lock:
            self._pattern = pattern

    def close(self) -> None:
        self._refusing = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.thaw()
        self.reset_connections()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self._refusing:
                _reset(client)
                continue
            try:
                server = socket.create_connection(("127.0.0.1", self._target_port), timeout=60)
            except OSError:
                _reset(client)
                continue
            server.settimeout(None)
            self._serve(_Link(client, server))

    def _serve(self, link: _Link) -> None:
        with self._lock:
            # A cut that came meanwhile did not find it.
            if self._refusing:
                link.reset()
                return
            self._links.add(link)
            for pump in (self._client_to_server, self._server_to_client):
                thread = threading.Thread(target=self._run, args=(pump, link), name=f"proxy {self.port}", daemon=True)
                link.threads.append(thread)
                thread.start()

    def _run(self, pump: object, link: _Link) -> None:
        assert callable(pump)
        with contextlib.suppress(OSError):
            pump(link)
        link.reset()
        with self._lock:
            self._links.discard(link)

    def _client_to_server(self, link: _Link) -> None:
        while chunk := link.client.recv(65536):
            self._flowing.wait()
            with self._lock:
                if self._pattern is not None and self._pattern in chunk:
                    self._pattern = None
                    link.doomed = True
            link.server.sendall(chunk)

    def _server_to_client(self, link: _Link) -> None:
        while chunk := link.server.recv(65536):
            self._flowing.wait()
            if link.doomed:
                self.dropped.set()
                return
            if self._delay_seconds:
                time.sleep(self._delay_seconds)
            link.client.sendall(chunk)

    def __enter__(self) -> Proxy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Link:
    """One client's connection and the one to the server that belongs to it."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client = client
        self.server = server
        self.doomed = False
        self.threads: list[threading.Thread] = []

    def reset(self) -> None:
        _reset(self.client)
        _reset(self.server)


def _reset(connection: socket.socket) -> None:
    """Closes with RST, and wakes a thread that is blocked in ``recv`` on it."""
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RD)
    connection.close()
