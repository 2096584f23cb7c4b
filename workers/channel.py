"""The byte channel: file bodies of any size between the API and the owner, in constant memory.

``GET|PUT /internal/v1/raw``; the envelope (task ``raw.read`` or ``raw.write``) travels as base64 of its JSON in the
header ``X-Sandloom-Envelope`` and names worker id and epoch beside the sandbox. ``sandloom.files.channel`` is the
client.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from typing import Annotated, Any

from cheroot import wsgi
from pydantic import Field

from sandloom.broker.envelope import FLEET_KEY_ID, Envelope
from sandloom.contracts.rest import Body, Generation, Name, SandboxPath
from sandloom.errors import (
    EnvelopeRefused,
    MalformedRequest,
    MethodNotAllowed,
    NotFound,
    RangeNotSatisfiable,
    RequestTimeout,
    SandloomError,
    StaleRoute,
    Unavailable,
)  # fmt: skip
from sandloom.execution.file_faults import FileFault
from sandloom.execution.open_file import OpenFile
from sandloom.files.channel import ENVELOPE_HEADER
from sandloom.ids import SandboxKey
from sandloom.telemetry import get_logger
from workers.context import NodeContext
from workers.peers import FleetConnection
from workers.tasks.requests import arguments, verify
from workers.translate import file_error

log = get_logger("sandloom.workers.channel")

PATH = "/internal/v1/raw"
PIECE_BYTES = 1 << 18
#: Silence of a peer that ends a transfer; and before it has shown that it belongs to the fleet.
SOCKET_TIMEOUT_SECONDS = 30
STRANGER_TIMEOUT_SECONDS = 3
MIN_THREADS, MAX_THREADS = 8, 64
MAX_HEADER_BYTES = 64 * 1024
_RANGE = re.compile(r"bytes=(\d{0,19})-(\d{0,19})\Z")
_HEADER = "HTTP_" + ENVELOPE_HEADER.upper().replace("-", "_")

_REQUEST, _TRUSTED = "sandloom.request", "sandloom.trusted"

Environ = dict[str, Any]
StartResponse = Callable[[str, list[tuple[str, str]]], Any]


class _Gateway(wsgi.Gateway_10):
    """Hands the request itself to the application, which decides how long to listen to its peer."""

    def get_environ(self) -> Environ:  # type: ignore[override]
        return {**super().get_environ(), _REQUEST: self.req}  # type: ignore[no-untyped-call]


class RawArgs(Body):
    sandbox_id: Name
    generation: Generation
    worker_id: str
    worker_epoch: int
    path: SandboxPath


class RawWriteArgs(RawArgs):
    mode: Annotated[int, Field(ge=0, le=0o777)] | None = None
    max_bytes: Annotated[int, Field(ge=0)]


class Channel:
    """The HTTP server and its WSGI application."""

    def __init__(self, host: str, port: int, sandbox_uids: range = range(0)) -> None:
        self._node: NodeContext | None = None
        self._server = wsgi.Server(
            (host, port), self._application, numthreads=MIN_THREADS, max=MAX_THREADS, timeout=STRANGER_TIMEOUT_SECONDS,
            request_queue_size=64, shutdown_timeout=2, server_name="sandloom",
        )  # fmt: skip
        self._server.gateway = _Gateway
        self._server.ConnectionClass = type("Connection", (FleetConnection,), {"sandbox_uids": sandbox_uids})
        self._server.max_request_header_size = MAX_HEADER_BYTES
        self._server.error_log = _log_error  # type: ignore[method-assign]
        self._thread: threading.Thread | None = None

    def bind(self) -> str:
        """Take the address, so that it can be announced; returns the endpoint. Raises OSError."""
        self._server.prepare()
        host, port = self._server.bind_addr[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def serve(self) -> None:
        """Answer; until ``open_to`` nobody gets anything but the word to come again."""
        self._thread = threading.Thread(target=self._server.serve, name="channel", daemon=True)
        self._thread.start()

    def open_to(self, node: NodeContext) -> None:
        self._node = node

    def close(self) -> None:
        """Also ends transfers that are going on."""
        self._server.stop()
        if self._thread is not None:
            self._thread.join(5.0)

    def _application(self, environ: Environ, start: StartResponse) -> Iterable[bytes]:
        try:
            return self._answer(environ, start)
        except SandloomError as error:
            refusal = error
        except FileFault as fault:
            refusal = file_error(fault)
        except Exception:
            log.exception("transfer failed")
            refusal = SandloomError()
        if environ.get(_TRUSTED):
            _drain(environ)
        else:
            # Nothing that a stranger sends is read, and its connection ends with the answer.
            environ[_REQUEST].close_connection = True
        return _problem(refusal, start)

    def _answer(self, environ: Environ, start: StartResponse) -> Iterable[bytes]:
        node = self._node
        if environ["PATH_INFO"] != PATH:
            raise NotFound
        if node is None:
            raise Unavailable
        if environ["REQUEST_METHOD"] == "GET":
            envelope = open_envelope(node, environ, "raw.read")
            return _read(node, envelope, arguments(RawArgs, envelope.args), environ.get("HTTP_RANGE"), start)
        if environ["REQUEST_METHOD"] == "PUT":
            envelope = open_envelope(node, environ, "raw.write")
            return _write(node, envelope, arguments(RawWriteArgs, envelope.args), environ, start)
        raise MethodNotAllowed


def _log_error(msg: str = "", level: int = 20, traceback: bool = False) -> None:
    """cheroot's own messages: peers that break off, mostly."""
    log.debug("channel", text=msg.strip())


def open_envelope(node: NodeContext, environ: Environ, task: str) -> Envelope:
    """The verified request of the fleet itself; nobody else uses this channel."""
    try:
        document = json.loads(base64.b64decode(environ.get(_HEADER, ""), validate=True))
    except (binascii.Error, ValueError, RecursionError):
        raise EnvelopeRefused from None
    envelope = verify(node.keys, task, {"envelope": document})
    if envelope.key_id != FLEET_KEY_ID:
        raise EnvelopeRefused
    environ[_TRUSTED] = True
    environ[_REQUEST].conn.socket.settimeout(SOCKET_TIMEOUT_SECONDS)
    if (envelope.args.get("worker_id"), envelope.args.get("worker_epoch")) != (
        node.identity.worker_id,
        node.identity.epoch,
    ):
        raise StaleRoute
    return envelope


class _Download:
    """The bytes of a response; closing it lets the sandbox go, whether or not it was read."""

    def __init__(self, file: OpenFile, start: int, length: int, held: ExitStack) -> None:
        self._file = file
        self._start = start
        self._length = length
        self._held = held

    def __iter__(self) -> Iterator[bytes]:
        return self._file.chunks(self._start, self._length)

    def close(self) -> None:
        self._held.close()


def _read(
    node: NodeContext, envelope: Envelope, args: RawArgs, wanted: str | None, start: StartResponse
) -> Iterable[bytes]:
    key = SandboxKey(envelope.tenant_id, args.sandbox_id)
    with ExitStack() as stack:
        files = stack.enter_context(node.homes.files(key, args.generation))
        node.sandboxes.touch(node.identity.fence(key, args.generation))
        file = stack.enter_context(files.open_read(args.path))
        span = parse_range(wanted, file.size_bytes)
        first, length = span or (0, file.size_bytes)
        headers = [
            ("Content-Type", "application/octet-stream"),
            ("Content-Length", str(length)),
            ("Accept-Ranges", "bytes"),
            # A file that becomes shorter must end the connection, or the reader would wait for the rest.
            ("Connection", "close"),
        ]
        if span is not None:
            headers.append(("Content-Range", f"bytes {first}-{first + length - 1}/{file.size_bytes}"))
        start("206 Partial Content" if span is not None else "200 OK", headers)
        return _Download(file, first, length, stack.pop_all())


def _write(
    node: NodeContext, envelope: Envelope, args: RawWriteArgs, environ: Environ, start: StartResponse
) -> Iterable[bytes]:
    key = SandboxKey(envelope.tenant_id, args.sandbox_id)
    most = min(args.max_bytes, node.settings.max_raw_file_bytes)
    with node.homes.files(key, args.generation) as files:
        node.sandboxes.touch(node.identity.fence(key, args.generation), envelope.op_id)
        mode = 0o600 if args.mode is None else args.mode
        size_bytes = files.write_stream(args.path, body_pieces(environ), mode, most)
    return _json("200 OK", {"path": args.path, "size_bytes": size_bytes}, "application/json", start)


def parse_range(header: str | None, size_bytes: int) -> tuple[int, int] | None:
    """(first byte, length) of a single range; None for none, and for forms that may be ignored.

    Raises RangeNotSatisfiable.
    """
    match = _RANGE.match(header.strip()) if header else None
    if match is None or match.groups() == ("", ""):
        return None
    first, last = match.groups()
    if not first:
        length = min(int(last), size_bytes)
        begin = size_bytes - length
    else:
        begin = int(first)
        end = min(int(last), size_bytes - 1) if last else size_bytes - 1
        if last and int(last) < begin:
            return None
        length = end - begin + 1
    if length <= 0 or begin >= size_bytes:
        raise RangeNotSatisfiable(size_bytes=size_bytes)
    return begin, length


def body_pieces(environ: Environ) -> Iterator[bytes]:
    """The body to its announced end. Raises when the peer stops before."""
    announced = environ.get("CONTENT_LENGTH") or None
    left = int(announced) if announced is not None else None
    while left is None or left > 0:
        try:
            piece = environ["wsgi.input"].read(PIECE_BYTES if left is None else min(left, PIECE_BYTES))
        except TimeoutError:
            raise RequestTimeout from None
        except Exception:  # cheroot's own for a broken chunk, OSError for a closed connection
            raise MalformedRequest("The body could not be read to its end.") from None
        if not piece:
            break
        left = None if left is None else left - len(piece)
        yield piece
    if left:
        raise MalformedRequest("The body ended before its announced length.")


def _drain(environ: Environ) -> None:
    """Read what the peer still sends: closing on unread data would reset the connection before it sees the answer."""
    try:
        for _ in body_pieces(environ) if environ["REQUEST_METHOD"] == "PUT" else ():
            pass
    except SandloomError:
        return


def _problem(error: SandloomError, start: StartResponse) -> Iterable[bytes]:
    body = error.to_problem()
    return _json(f"{error.status} {body['title']}", body, "application/problem+json", start)


def _json(status: str, body: dict[str, Any], content_type: str, start: StartResponse) -> Iterable[bytes]:
    data = json.dumps(body).encode()
    start(status, [("Content-Type", content_type), ("Content-Length", str(len(data))), ("Connection", "close")])
    return [data]
