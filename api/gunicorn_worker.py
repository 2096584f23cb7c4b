"""gunicorn's threaded worker, with bounds on slow clients and errors as problems."""

from __future__ import annotations

import socket
import time
from typing import Any

from gunicorn.http.errors import LimitRequestHeaders, LimitRequestLine, ParseException
from gunicorn.workers.gthread import ThreadWorker

from api.problems import CONTENT_TYPE, problem_bytes, reason
from api.read_deadlines import READ_DEADLINES
from sandloom.errors import MalformedRequest, SandloomError
from sandloom.telemetry import new_request_id

#: Request line and headers must be there within this time.
HEADER_SECONDS = 20.0
#: Each write of at most 256 KiB to a client, and each read, ends within this time.
SOCKET_SECONDS = 60.0
#: How long a closing connection is read, so that the client sees the answer instead of a reset.
LINGER_SECONDS = 2.0


class Worker(ThreadWorker):  # type: ignore[misc]
    """One process: a thread per request that is being served, none for an idle connection."""

    def handle(self, conn: Any) -> Any:
        conn.header_deadline = READ_DEADLINES.start(conn.sock, HEADER_SECONDS)
        try:
            outcome = super().handle(conn)
        finally:
            READ_DEADLINES.stop(conn.header_deadline)
        if outcome is False:
            # Otherwise the main thread would do it, and one client after another could hold it up.
            _linger(conn.sock)
        return outcome

    def handle_request(self, req: Any, conn: Any) -> Any:
        READ_DEADLINES.stop(conn.header_deadline)
        conn.sock.settimeout(SOCKET_SECONDS)
        return super().handle_request(req, conn)

    def _keepalive_after(self, conn: Any, keepalive: bool) -> bool:
        try:
            return bool(super()._keepalive_after(conn, keepalive))
        except ParseException:
            # The request is answered already: what is wrong with the rest of its body must not become a second answer.
            return False

    def handle_error(self, req: Any, client: socket.socket, addr: Any, exc: BaseException) -> None:
        """What the server itself could not read, or an application that failed outside of Flask."""
        if isinstance(exc, ParseException):
            self.log.warning("invalid request from %s: %s", (addr or ("",))[0], type(exc).__name__)
            error: SandloomError = MalformedRequest("The request is not valid HTTP.")
        else:
            self.log.exception("Error handling request")
            error = SandloomError()
        status = {LimitRequestLine: 414, LimitRequestHeaders: 431}.get(type(exc), error.status)
        try:
            client.settimeout(SOCKET_SECONDS)
            client.sendall(raw_problem(status, error))
        except OSError:
            self.log.debug("the client did not take the error")

    def handle_exit(self, sig: int, frame: Any) -> None:
        super().handle_exit(sig, frame)
        # On the main loop: a signal handler must not wait for a lock.
        self.method_queue.defer(self._stop_waiting)

    def _stop_waiting(self) -> None:
        self.wsgi.extensions["sandloom"].stop_waiting()


def raw_problem(status: int, error: SandloomError) -> bytes:
    """A whole HTTP answer; ``status`` goes before that of the error."""
    body = problem_bytes(error, status)
    head = (
        f"HTTP/1.1 {status} {reason(error, status)}\r\nConnection: close\r\nContent-Type: {CONTENT_TYPE}\r\n"
        f"Content-Length: {len(body)}\r\nX-Request-ID: {new_request_id()}\r\n\r\n"
    )
    return head.encode("latin-1") + body


def _linger(sock: socket.socket) -> None:
    until = time.monotonic() + LINGER_SECONDS
    try:
        sock.shutdown(socket.SHUT_WR)
        while (left := until - time.monotonic()) > 0:
            sock.settimeout(left)
            if not sock.recv(65536):
                break
        sock.shutdown(socket.SHUT_RD)
    except OSError:
        return
