"""A deployment that is not what it says: a proxy before a real one that alters some of its answers."""

from __future__ import annotations

import contextlib
import json
import re
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

#: Takes status and body of the real answer, returns those that the client gets.
Alter = Callable[[int, bytes], tuple[int, bytes]]


@dataclass(frozen=True)
class Lie:
    """For requests whose ``METHOD /path?query body`` matches, or for the first of them alone."""

    pattern: str
    alter: Alter
    once: bool = False


def field(**values: Any) -> Alter:
    """A JSON answer with other values; a value that is called gets the real one."""

    def alter(status: int, body: bytes) -> tuple[int, bytes]:
        document = json.loads(body)
        for name, value in values.items():
            document[name] = value(document.get(name)) if callable(value) else value
        return status, json.dumps(document).encode()

    return alter


def accepted(status: int, body: bytes) -> tuple[int, bytes]:
    """Every refusal becomes a success."""
    return 200, b'{"sandboxes": []}' if status >= 400 else body


class LyingProxy:
    """Serves until the end of the block."""

    def __init__(self, upstream: str, lies: list[Lie]) -> None:
        proxy = self
        self._upstream, self._lies = upstream, [*lies]

        class Handler(BaseHTTPRequestHandler):
            def _serve(self) -> None:
                proxy.serve(self)

            do_GET = do_POST = do_PUT = do_DELETE = _serve

            def log_message(self, format: str, *args: Any) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def serve(self, handler: BaseHTTPRequestHandler) -> None:
        body = _body(handler)
        headers = {name: value for name, value in handler.headers.items() if name.lower() not in HOP_BY_HOP}
        url = self._upstream + handler.path
        request = urllib.request.Request(url, data=body, method=handler.command, headers=headers)
        try:
            answer: Any = urllib.request.urlopen(request, timeout=90)
        except urllib.error.HTTPError as error:
            answer = error
        text = f"{handler.command} {handler.path} ".encode() + (body or b"")
        lies = [lie for lie in self._lies if re.search(lie.pattern.encode(), text, re.DOTALL)]
        self._lies = [lie for lie in self._lies if not (lie.once and lie in lies)]
        # A client may leave a stream before its end.
        with answer, contextlib.suppress(BrokenPipeError, ConnectionResetError):
            status, whole = answer.status, None
            for lie in lies:
                status, whole = lie.alter(status, answer.read() if whole is None else whole)
            handler.send_response(status)
            for name in ("Content-Type", "Retry-After", "X-Request-ID"):
                if name in answer.headers:
                    handler.send_header(name, answer.headers[name])
            handler.end_headers()
            pieces = iter(lambda: answer.read1(65536), b"") if whole is None else [whole]
            for piece in pieces:
                handler.wfile.write(piece)
                handler.wfile.flush()

    def __enter__(self) -> LyingProxy:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


HOP_BY_HOP = {"host", "connection", "content-length", "transfer-encoding", "accept-encoding"}


def _body(handler: BaseHTTPRequestHandler) -> bytes | None:
    if handler.headers.get("Transfer-Encoding") == "chunked":
        pieces = []
        while size := int(handler.rfile.readline(), 16):
            pieces.append(handler.rfile.read(size))
            handler.rfile.readline()
        handler.rfile.readline()
        return b"".join(pieces)
    length = handler.headers.get("Content-Length")
    return None if length is None else handler.rfile.read(int(length))
