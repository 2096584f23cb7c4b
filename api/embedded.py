"""The application on waitress, for the one-process mode: waitress buffers what slow clients send."""

from __future__ import annotations

import socket
import threading
from typing import Any

from flask import Flask
from waitress.adjustments import Adjustments
from waitress.channel import HTTPChannel
from waitress.parser import HTTPRequestParser, ParsingError
from waitress.server import create_server
from waitress.task import ErrorTask, ThreadedTaskDispatcher, WSGITask
from waitress.utilities import BadRequest, RequestEntityTooLarge, RequestHeaderFieldsTooLarge

from api.body_limits import BodyLimits
from api.problems import CONTENT_TYPE, problem_bytes, reason
from sandloom.errors import BodyTooLarge, MalformedRequest, RequestTimeout, SandloomError
from sandloom.settings import Settings
from sandloom.telemetry import new_request_id

_MAX_HEADER_BYTES = 64 * 1024
#: A connection on which nothing moves is ended after this long.
_IDLE_SECONDS = 60


class EmbeddedServer:
    """Serves from ``start`` until ``close``. Waits and streams have threads beyond those for short calls."""

    def __init__(self, app: Flask, settings: Settings) -> None:
        self._app = app
        threads = settings.api_threads + settings.max_waits + settings.max_streams
        limits = BodyLimits(app, settings)

        class Channel(_Channel):
            @staticmethod
            def parser_class(adj: Any) -> _Parser:
                return _Parser(adj, limits)

        self._server: Any = create_server(
            app,
            _dispatcher=_GrowingDispatcher(threads),
            host=settings.host,
            port=settings.port,
            threads=threads,
            connection_limit=threads + 1024,
            # select() cannot watch descriptors above 1023.
            asyncore_use_poll=True,
            # Reading on while a request is served is how a client that leaves is noticed.
            channel_request_lookahead=1,
            # What is kept of an answer for a client that does not take it; its thread then waits.
            outbuf_high_watermark=1 << 20,
            max_request_header_size=_MAX_HEADER_BYTES,
            max_request_body_size=limits.largest + 1,
            ident=None,
        )
        self._server.channel_class = Channel
        self._server.maintenance = self._end_idle
        self._thread = threading.Thread(target=self._server.run, name="api", daemon=True)
        self._pulling = threading.Lock()

    @property
    def port(self) -> int:
        return int(self._server.effective_port)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """End waits and streams, then stop; requests in progress have a few seconds. May be called twice."""
        if not self._thread.is_alive():
            return
        self._app.extensions["sandloom"].stop_waiting()
        self._server.task_dispatcher.shutdown(cancel_pending=True, timeout=5)
        self._end_loop()

    def _end_idle(self, now: float) -> None:
        """In place of waitress's own, which closes also a request that stalls in the middle without a word."""
        for channel in list(self._server.active_channels.values()):
            if not channel.requests and channel.last_activity < now - _IDLE_SECONDS:
                channel.end_idle()

    def _end_loop(self) -> None:
        # On the loop's own thread, which may be about to use any of these descriptors.
        with self._pulling:
            self._server.trigger.pull_trigger(self._close_all)
        self._thread.join(timeout=5)

    def _close_all(self) -> None:
        # A loop that is awake comes here while the trigger is still being pulled, which closes with the rest.
        with self._pulling:
            pass
        for channel in list(self._server.active_channels.values()):
            channel.handle_close()
        self._server.close()


def serve(app: Flask, settings: Settings) -> EmbeddedServer:
    """A server bound to ``settings.host`` and ``settings.port``; not started yet."""
    return EmbeddedServer(app, settings)


class _GrowingDispatcher(ThreadedTaskDispatcher):  # type: ignore[misc]
    """Starts a thread when none is idle, up to ``limit``, instead of all at once."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self._limit = limit

    def add_task(self, task: Any) -> None:
        with self.lock:
            self.queue.append(task)
            self.queue_cv.notify()
            running = len(self.threads) - self.stop_count
            idle = running - self.active_count
            grow = len(self.queue) > idle and running < self._limit
        if grow:
            self.set_thread_count(running + 1)


class _Parser(HTTPRequestParser):  # type: ignore[misc]
    """Holds each address to its own body limit, from the moment its header is read."""

    def __init__(self, adj: Adjustments, limits: BodyLimits) -> None:
        super().__init__(adj)
        self._limits = limits

    def parse_header(self, header_plus: bytes) -> None:
        try:
            super().parse_header(header_plus)
        except ValueError:  # an address that urlsplit refuses
            raise ParsingError("Bad address") from None
        limit_bytes = self._limits.for_request(self.command, self.path)
        # Waitress refuses what reaches this number.
        self.adj: Any = _WithBodyLimit(self.adj, limit_bytes + 1)


class _WithBodyLimit:
    """Waitress's adjustments with another ``max_request_body_size``."""

    def __init__(self, adjustments: Adjustments, limit_bytes: int) -> None:
        self._adjustments = adjustments
        self.max_request_body_size = limit_bytes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._adjustments, name)


class _Problem:
    """Stands in for waitress's own errors, whose bodies are plain text."""

    def __init__(self, error: SandloomError, status: int) -> None:
        self._error = error
        self._status = status

    def to_response(self, ident: str | None = None) -> tuple[str, list[tuple[str, str]], bytes]:
        body = problem_bytes(self._error, self._status)
        headers = [("Content-Type", CONTENT_TYPE), ("X-Request-ID", new_request_id())]
        return f"{self._status} {reason(self._error, self._status)}", headers, body


class _ErrorTask(ErrorTask):  # type: ignore[misc]
    def execute(self) -> None:
        self.request.error = _as_problem(self.request.error)
        super().execute()


class _Task(WSGITask):  # type: ignore[misc]
    """Sends its head together with the first piece of the body: each write wakes the client."""

    wrote_header: bool

    def write(self, data: bytes) -> None:
        if self.complete and not self.wrote_header:
            self.channel.head = self.build_response_header()
            self.wrote_header = True
        super().write(data)
        self.channel.write_soon(b"")  # the head, if no piece took it along


class _Channel(HTTPChannel):  # type: ignore[misc]
    """One connection. A request that will never be whole is answered, not only dropped."""

    task_class = _Task
    error_task_class = _ErrorTask
    request: Any  # the one that is being received
    head = b""
    _ended = False

    def readable(self) -> bool:
        return not self._ended and bool(super().readable())

    def recv(self, buffer_size: int) -> bytes:
        if self._in_a_body() and self._at_end():
            self._refuse(MalformedRequest("The body ended before its announced length."))
            return b""
        return bytes(super().recv(buffer_size))

    def handle_read(self) -> None:
        super().handle_read()
        if self._ended:
            self.connected = True  # it is for the answer

    def write_soon(self, data: Any) -> int:
        head, self.head = self.head, b""
        return int(super().write_soon(head + data if head else data))

    def end_idle(self) -> None:
        if self._in_a_body():
            self._refuse(RequestTimeout())
        else:
            self.will_close = True

    def _in_a_body(self) -> bool:
        return bool(self.request is not None and self.request.headers_finished and not self.requests)

    def _at_end(self) -> bool:
        """Whether the client has said that nothing more comes."""
        try:
            return bool(self.socket.recv(1, socket.MSG_PEEK) == b"")
        except OSError:
            return False

    def _refuse(self, error: SandloomError) -> None:
        with self.requests_lock:
            request, self.request = self.request, None
            request.error = _Problem(error, error.status)
            request.completed = True
            self._ended = True
            self.requests.append(request)
        self.server.add_task(self)


def _as_problem(error: Any) -> _Problem:
    if isinstance(error, _Problem):
        return error
    if isinstance(error, RequestEntityTooLarge):
        return _Problem(BodyTooLarge(), 413)
    if isinstance(error, RequestHeaderFieldsTooLarge):
        return _Problem(MalformedRequest("The headers are too large."), 431)
    if isinstance(error, BadRequest) or error.code == 501:
        return _Problem(MalformedRequest("The request is not valid HTTP."), 400)
    return _Problem(SandloomError(), 500)
