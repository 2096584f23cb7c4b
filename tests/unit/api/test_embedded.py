"""What the one-process server does with connections that end or stall in the middle of a request."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from flask import Flask
from waitress.channel import HTTPChannel

from api.embedded import EmbeddedServer, serve
from sandloom.settings import Settings

HEAD = b"PUT /x HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedServer]:
    variables = {"SANDBOX_DATA_DIR": str(tmp_path), "SANDBOX_INTERNAL_TOKEN": "t", "SANDBOX_SECRET_KEY": "s"}
    app = Flask("test")
    server = serve(app, Settings.load(variables).embedded().model_copy(update={"port": 0}))
    server.start()
    yield server
    server._end_loop()


def answer_after(server: EmbeddedServer, data: bytes, *, stalls: bool) -> bytes:
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        connection.sendall(data)
        if not stalls:
            connection.shutdown(socket.SHUT_WR)
            return b"".join(iter(lambda: connection.recv(65536), b""))
        # What nothing was read of is closed without an answer.
        while data and not any(channel.request for channel in list(server._server.active_channels.values())):
            time.sleep(0.01)
        connection.settimeout(0.1)
        received = b""
        while True:
            # As if a long time had passed, once the server has read what was sent.
            server._server.trigger.pull_trigger(lambda: server._end_idle(time.time() + 1000))
            try:
                piece = connection.recv(65536)
            except TimeoutError:
                continue
            if not piece:
                return received
            received += piece


def test_a_body_that_stalls_is_answered(server: EmbeddedServer) -> None:
    found = answer_after(server, HEAD + b"{", stalls=True)
    assert found.startswith(b"HTTP/1.1 408")
    assert b"application/problem+json" in found


def test_a_body_that_is_cut_off_is_answered(server: EmbeddedServer) -> None:
    assert answer_after(server, HEAD + b"{", stalls=False).startswith(b"HTTP/1.1 400")


@pytest.mark.parametrize("stalls", [True, False])
@pytest.mark.parametrize("data", [b"", b"PUT /x HT"])
def test_a_connection_without_a_request_just_ends(server: EmbeddedServer, data: bytes, stalls: bool) -> None:
    assert answer_after(server, data, stalls=stalls) == b""


@pytest.mark.parametrize(("method", "end"), [("GET", b"\r\n\r\nhello"), ("HEAD", b"\r\n\r\n")])
def test_an_answer_is_sent_in_one_piece(
    server: EmbeddedServer, method: str, end: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[bytes] = []
    send = HTTPChannel.send

    def note(channel: HTTPChannel, data: bytes, **options: Any) -> int:
        sent.append(bytes(data))
        return int(send(channel, data, **options))

    server._app.add_url_rule("/text", "text", lambda: "hello")
    monkeypatch.setattr(HTTPChannel, "send", note)
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        for _ in range(2):
            connection.sendall(f"{method} /text HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            received = b""
            while not received.endswith(end):
                received += connection.recv(65536)
            assert sent == [received]
            sent.clear()
