"""gunicorn's threaded worker, with bounds on slow clients, errors as problems, and less CPU for a request."""

from __future__ import annotations

import select
import socket
import sys
import threading
import time
from typing import Any

from gunicorn.http import wsgi
from gunicorn.http.errors import LimitRequestHeaders, LimitRequestLine, ParseException
from gunicorn.util import close_graceful
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


#: A thread waits this long for the next request of its connection before it gives the connection back to the main
#: loop: a client that calls again at once costs no change of threads.
NEXT_REQUEST_MS = 500
#: Threads that may wait so at once; they come on top of those that serve.
MAX_WAITING = 64
#: A request waits for other processes again and again and gives the interpreter away each time. What a thread that
#: computes on keeps the others waiting for is this long, and each of them wakes as often to ask for its turn.
SWITCH_SECONDS = 0.02


class Worker(ThreadWorker):  # type: ignore[misc]
    """One process: a thread per request that is being served, none for a connection that is idle for long."""

    def init_process(self) -> None:
        sys.setswitchinterval(SWITCH_SECONDS)
        self._places = threading.Semaphore(MAX_WAITING)
        super().init_process()

    def handle(self, conn: Any) -> Any:
        outcome = self._handle_one(conn)
        while outcome is True and self._next_is_there(conn):
            outcome = self._handle_one(conn)
        if outcome is False:
            # Otherwise the main thread would do it, and one client after another could hold it up.
            _linger(conn.sock)
        return outcome

    def _handle_one(self, conn: Any) -> Any:
        conn.header_deadline = READ_DEADLINES.start(conn.sock, HEADER_SECONDS)
        try:
            return super().handle(conn)
        finally:
            READ_DEADLINES.stop(conn.header_deadline)

    def _next_is_there(self, conn: Any) -> bool:
        """Whether the connection, or its client's end, can be read within a moment."""
        if conn.parser.unreader.buf.getvalue() or not self.alive or not self._places.acquire(blocking=False):
            return False
        try:
            poll = select.poll()
            poll.register(conn.sock, select.POLLIN)
            return bool(poll.poll(NEXT_REQUEST_MS))
        finally:
            self._places.release()

    def handle_request(self, req: Any, conn: Any) -> bool:
        """gunicorn's, with the answer in one write; whether the connection can serve another request."""
        READ_DEADLINES.stop(conn.header_deadline)
        conn.sock.settimeout(SOCKET_SECONDS)
        answer, environ = wsgi.create(req, conn.sock, conn.client, conn.server, self.cfg, response_class=_Answer)
        environ["wsgi.multithread"] = True
        if not self.alive or len(self.keepalived_conns) >= self.max_keepalived:
            answer.force_close()
        try:
            pieces = self.wsgi(environ, answer.start_response)
            try:
                for piece in pieces:
                    answer.write(piece)
                answer.close()
            finally:
                if hasattr(pieces, "close"):
                    pieces.close()
        except OSError:
            raise
        except (Exception, SystemExit):
            if not answer.headers_sent:
                raise
            # A second status line in the middle of an answer would be read as a part of it.
            self.log.exception("Error handling request")
            close_graceful(conn.sock)
            raise StopIteration from None
        return not answer.should_close()

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


class _Answer(wsgi.Response):  # type: ignore[misc]
    """Sends its head together with the first piece of the body: each write wakes the client."""

    headers_sent: bool
    _head = b""

    def send_headers(self) -> None:
        if not self.headers_sent:
            lines = [*self.default_headers(), *(f"{name}: {value}\r\n" for name, value in self.headers), "\r\n"]
            self._head = "".join(lines).encode("latin-1")
            self.headers_sent = True

    def write(self, arg: bytes) -> None:
        super().write(arg)
        self._flush()

    def close(self) -> None:
        self.send_headers()
        self._flush()
        super().close()

    def _emit_body(self, data: bytes) -> None:
        head, self._head = self._head, b""
        self.sock.sendall(head + (b"%X\r\n%b\r\n" % (len(data), data) if self.chunked else data))

    def _flush(self) -> None:
        head, self._head = self._head, b""
        if head:
            self.sock.sendall(head)


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
