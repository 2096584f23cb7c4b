"""A front for an HTTP server that answers some requests wrongly."""

from __future__ import annotations

import http.client
import http.server
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass
class Fault:
    """What happens to answers of ``method`` while it is set. ``times``: to so many of them only, None for all.

    ``status``: this instead of asking the server. ``cut_after`` bytes of the body the connection ends. ``flip``: one
    bit of the body differs. ``hold``: no body comes, and the connection ends when this event is set.
    """

    method: str
    status: int | None = None
    cut_after: int | None = None
    flip: bool = False
    hold: threading.Event | None = None
    times: int | None = None


class FaultyFront:
    """One thread per connection; ``asked`` counts requests by method."""

    def __init__(self, port: int) -> None:
        self.fault: Fault | None = None
        self.asked: dict[str, int] = {}
        handler = _handler(self, port)
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def close(self) -> None:
        if self.fault is not None and self.fault.hold is not None:
            self.fault.hold.set()
        self._server.shutdown()
        self._server.server_close()

    def take(self, method: str) -> Fault | None:
        """The fault of this request."""
        self.asked[method] = self.asked.get(method, 0) + 1
        fault = self.fault
        if fault is None or fault.method != method or fault.times == 0:
            return None
        if fault.times is not None:
            fault.times -= 1
        return fault


@contextmanager
def faulty_front(port: int) -> Iterator[FaultyFront]:
    front = FaultyFront(port)
    try:
        yield front
    finally:
        front.close()


def _handler(front: FaultyFront, port: int) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def pass_on(self) -> None:
            if self.headers.get("Expect", "").lower() == "100-continue":
                self.send_response_only(100)
                self.end_headers()
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            fault = front.take(self.command)
            if fault is not None and fault.status is not None:
                self.send_response_only(fault.status)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            upstream = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
            headers = {name: value for name, value in self.headers.items() if name.lower() != "expect"}
            # The signature covers the name under which the front is known.
            upstream.request(self.command, self.path, body=body, headers=headers)
            answer = upstream.getresponse()
            self._answer(answer, answer.read(), fault)
            upstream.close()

        def _answer(self, answer: http.client.HTTPResponse, body: bytes, fault: Fault | None) -> None:
            self.send_response_only(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                    self.send_header(name, value)
            length = answer.getheader("Content-Length") if self.command == "HEAD" else str(len(body))
            self.send_header("Content-Length", length or "0")
            self.end_headers()
            if fault is not None and fault.flip and body:
                body = bytes([body[0] ^ 1]) + body[1:]
            if fault is not None and fault.hold is not None:
                fault.hold.wait(60)
                self.close_connection = True
                return
            if fault is not None and fault.cut_after is not None:
                self.wfile.write(body[: fault.cut_after])
                self.close_connection = True
                return
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """The test says what happened."""

    methods: dict[str, Callable[[Handler], None]] = {
        f"do_{name}": Handler.pass_on for name in ("GET", "PUT", "POST", "HEAD", "DELETE")
    }
    return type("FaultyHandler", (Handler,), methods)
