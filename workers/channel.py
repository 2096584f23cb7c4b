"""The byte channel: file bodies of any size between the API and the owner, in constant memory.

``GET|PUT /internal/v1/raw`` and ``…/archive``; the envelope (task ``raw.read``, ``raw.write``, ``archive.read`` or
``archive.write``) travels as base64 of its JSON in the header ``X-Sandloom-Envelope`` and names worker id and epoch
beside the sandbox. ``sandloom.files.channel`` is the client.
"""

from __future__ import annotations

import base64
import binascii
import json
import threading
from collections.abc import Iterable

from cheroot import wsgi

from sandloom.broker.envelope import FLEET_KEY_ID, Envelope
from sandloom.errors import (
    EnvelopeRefused,
    MalformedRequest,
    MethodNotAllowed,
    NotFound,
    SandloomError,
    StaleRoute,
    Unavailable,
)  # fmt: skip
from sandloom.execution.file_faults import FileFault
from sandloom.files.channel import ENVELOPE_HEADER
from sandloom.telemetry import get_logger
from workers.context import NodeContext
from workers.peers import FleetConnection
from workers.tasks.requests import verify
from workers.transfers import Environ, StartResponse, Transfer, body_pieces, json_answer
from workers.translate import file_error

log = get_logger("sandloom.workers.channel")

PREFIX = "/internal/v1/"
#: Silence of a peer that ends a transfer: longer than the API listens to a silent client, whom it then tells why. And
#: before it has shown that it belongs to the fleet.
SOCKET_TIMEOUT_SECONDS = 45
STRANGER_TIMEOUT_SECONDS = 3
MIN_THREADS, MAX_THREADS = 8, 64
MAX_HEADER_BYTES = 64 * 1024
_HEADER = "HTTP_" + ENVELOPE_HEADER.upper().replace("-", "_")

_REQUEST, _TRUSTED = "sandloom.request", "sandloom.trusted"


class _Gateway(wsgi.Gateway_10):
    """Hands the request itself to the application, which decides how long to listen to its peer."""

    def get_environ(self) -> Environ:  # type: ignore[override]
        return {**super().get_environ(), _REQUEST: self.req}  # type: ignore[no-untyped-call]


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
        what = environ["PATH_INFO"].removeprefix(PREFIX)
        if what not in ("raw", "archive") or not environ["PATH_INFO"].startswith(PREFIX):
            raise NotFound
        if node is None:
            raise Unavailable
        if environ.get("CONTENT_LENGTH") and environ.get("HTTP_TRANSFER_ENCODING"):
            # Two ends of one body: whoever is in between may believe the other one.
            raise MalformedRequest("The request has both Content-Length and Transfer-Encoding.")
        way = {"GET": "read", "PUT": "write"}.get(environ["REQUEST_METHOD"])
        if way is None:
            raise MethodNotAllowed
        transfer = Transfer(node, open_envelope(node, environ, f"{what}.{way}"), environ, start)
        return {
            "raw.read": transfer.read, "raw.write": transfer.write,
            "archive.read": transfer.read_archive, "archive.write": transfer.write_archive,
        }[f"{what}.{way}"]()  # fmt: skip


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


def _drain(environ: Environ) -> None:
    """Read what the peer still sends: closing on unread data would reset the connection before it sees the answer."""
    try:
        for _ in body_pieces(environ) if environ["REQUEST_METHOD"] == "PUT" else ():
            pass
    except SandloomError:
        return


def _problem(error: SandloomError, start: StartResponse) -> Iterable[bytes]:
    body = error.to_problem()
    return json_answer(f"{error.status} {body['title']}", body, "application/problem+json", start)
