"""What the server's environ tells about the client's connection."""

from __future__ import annotations

import select
import socket
from collections.abc import Callable
from typing import Any

_GONE = select.POLLHUP | select.POLLERR | getattr(select, "POLLRDHUP", 0)


def client_socket(environ: dict[str, Any]) -> socket.socket | None:
    """The socket, where the application reads from it itself (gunicorn)."""
    sock = environ.get("gunicorn.socket")
    return sock if isinstance(sock, socket.socket) else None


def client_watch(environ: dict[str, Any]) -> Callable[[], bool]:
    """A function that says whether the client has gone away, without blocking."""
    probe = environ.get("waitress.client_disconnected")
    if probe is not None:
        return lambda: bool(probe())
    sock = client_socket(environ)
    if sock is None:
        return lambda: False

    def gone() -> bool:
        poll = select.poll()
        try:
            poll.register(sock, getattr(select, "POLLRDHUP", 0))
            return any(event & _GONE for _, event in poll.poll(0))
        except (OSError, ValueError):
            return True

    return gone
