"""Server-sent events, and a stream that survives lost connections."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandloom.errors import CursorAhead, Unavailable
from sandloom.sdk import follow as following
from sandloom.sdk.events import Event, Frame, frames
from sandloom.sdk.follow import follow
from sandloom.sdk.transport import Transport

TEXT = "a:b\u2028ü\x0c\x85 z"


def _wire(seq: int, kind: str, data: dict[str, object]) -> bytes:
    return f"id: {seq}\nevent: {kind}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n".encode()


@given(st.lists(st.integers(1, 12), max_size=40))
def test_frames_do_not_depend_on_how_bytes_arrive(sizes: list[int]) -> None:
    wire = b": hello\n\n" + _wire(1, "stdout", {"text": TEXT}) + b": beat\r\n\r\n" + b"event: end\ndata: {}\r\n\r\n"
    chunks, rest = [], wire
    for size in sizes:
        chunks.append(rest[:size])
        rest = rest[size:]
    assert list(frames([*chunks, rest])) == [
        Frame("1", "stdout", json.dumps({"text": TEXT}, ensure_ascii=False)),
        Frame(None, "end", "{}"),
    ]


def test_a_frame_that_was_cut_off_is_left_out() -> None:
    assert list(frames([_wire(1, "stdout", {"text": "x"})[:-1]])) == []


def test_output_of_an_event_is_exact_bytes_and_readable_text() -> None:
    assert Event(1, "stdout", {"base64": "/wA="}).bytes == b"\xff\x00"
    assert Event(1, "stdout", {"base64": "/wA="}).text == "\ufffd\x00"
    assert Event(1, "stdout", {"text": "ü"}).bytes == "ü".encode()
    assert Event(1, "status", {"status": "RUNNING"}).bytes == b""


Answer = Callable[[BaseHTTPRequestHandler, int], None]


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[list[Answer]], tuple[Transport, list[str]]]]:
    """A server whose n-th connection is answered by the n-th function; the cursors it was asked for."""
    monkeypatch.setattr(following, "pause_seconds", lambda _attempt: 0.0)
    opened: list[tuple[ThreadingHTTPServer, Transport]] = []

    def start(answers: list[Answer]) -> tuple[Transport, list[str]]:
        cursors: list[str] = []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                cursors.append(self.headers["Last-Event-ID"])
                answers[min(len(cursors), len(answers)) - 1](self, int(cursors[-1]))

            def log_message(self, *_arguments: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        transport = Transport(f"http://127.0.0.1:{server.server_port}", "t", tenant=None, timeout_seconds=60)
        opened.append((server, transport))
        return transport, cursors

    yield start
    for server, transport in opened:
        transport.close()
        server.shutdown()
        server.server_close()


def _stream(handler: BaseHTTPRequestHandler, *parts: bytes) -> None:
    handler.send_response(200)
    handler.send_header("Content-Type", "text/event-stream")
    handler.end_headers()
    for part in parts:
        handler.wfile.write(part)


def _problem(handler: BaseHTTPRequestHandler, status: int, code: str) -> None:
    body = json.dumps({"status": status, "code": code, "detail": "no"}).encode()
    handler.send_response(status)
    handler.send_header("Content-Type", "application/problem+json")
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


def test_a_lost_connection_is_taken_up_after_the_last_event(serve: Callable[..., tuple[Transport, list[str]]]) -> None:
    one, two, three = (_wire(seq, "stdout", {"text": str(seq)}) for seq in (1, 2, 3))
    end = b"event: end\ndata: {}\n\n"
    transport, cursors = serve(
        [
            lambda h, _: _stream(h, one, two[:-3]),
            lambda h, _: _problem(h, 503, "SERVICE_UNAVAILABLE"),
            lambda h, _: _stream(h, one, two),
            lambda h, _: _stream(h, three, end, _wire(4, "stdout", {"text": "after the end"})),
        ]
    )
    assert [event.seq for event in follow(transport, "/x")] == [1, 2, 3]
    assert cursors == ["0", "1", "1", "2"]


def test_a_cursor_at_the_end_yields_nothing(serve: Callable[..., tuple[Transport, list[str]]]) -> None:
    def nothing(handler: BaseHTTPRequestHandler, _after: int) -> None:
        handler.send_response(204)
        handler.end_headers()

    transport, cursors = serve([nothing])
    assert list(follow(transport, "/x", after=9)) == []
    assert cursors == ["9"]


def test_an_error_that_waiting_does_not_help_is_raised(serve: Callable[..., tuple[Transport, list[str]]]) -> None:
    transport, cursors = serve([lambda h, _: _problem(h, 409, "SANDBOX_CURSOR_AHEAD")])
    with pytest.raises(CursorAhead):
        list(follow(transport, "/x", after=9))
    assert len(cursors) == 1


def test_a_service_that_stays_away_ends_the_stream_with_an_error(
    serve: Callable[..., tuple[Transport, list[str]]],
) -> None:
    transport, cursors = serve([lambda h, _: _stream(h)])
    with pytest.raises(Unavailable):
        list(follow(transport, "/x"))
    assert len(cursors) > 5
