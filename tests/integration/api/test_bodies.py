"""Bodies that are too large, never end, or are no HTTP at all, sent byte by byte."""

from __future__ import annotations

import json
import socket
from dataclasses import dataclass

import pytest

from tests.integration.api.servers import TOKEN, Api


@dataclass(frozen=True)
class Raw:
    status: int
    head: str
    body: bytes


def exchange(api: Api, data: bytes, *, then: bytes = b"", rounds: int = 0) -> Raw:
    """Send ``data``, then ``then`` again and again as long as the server takes it, and read the answer to its end."""
    with socket.create_connection(api.host_port, timeout=60) as connection:
        connection.sendall(data)
        received = b""
        try:
            for _ in range(rounds):
                connection.sendall(then)
        except (BrokenPipeError, ConnectionResetError):
            pass
        try:
            while chunk := connection.recv(65536):
                received += chunk
                head, _, body = received.partition(b"\r\n\r\n")
                length = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
                if length and len(body) >= int(length[0].split(b":")[1]):
                    break
        except ConnectionResetError:
            pass
    head, _, body = received.partition(b"\r\n\r\n")
    return Raw(int(head.split(b" ")[1]), head.decode("latin-1"), body)


def request(api: Api, method: str, path: str, *headers: str, token: str = TOKEN) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: test", f"Authorization: Bearer {token}", *headers]
    return "\r\n".join([*lines, f"X-Sandbox-Tenant: {api.tenant_id}", "", ""]).encode("latin-1")


def problem(raw: Raw) -> dict:
    assert "content-type: application/problem+json" in raw.head.lower()
    assert "x-request-id:" in raw.head.lower()
    found = json.loads(raw.body)
    assert found["status"] == raw.status
    return found


RESOLVE = "/api/v1/sandboxes/resolve"
AS_JSON = "Content-Type: application/json"
ROUTES = [
    ("POST", RESOLVE),
    ("POST", "/api/v1/sandboxes/box/exec"),
    ("PUT", "/api/v1/sandboxes/box/files"),
    ("PUT", "/api/v1/sandboxes/box/files/raw?path=/workspace/a&generation=1"),
    ("POST", "/api/v1/sandboxes/box/files/mkdir"),
]


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_an_announced_body_over_the_limit_is_413_before_it_is_sent(any_server: Api, method: str, path: str) -> None:
    answer = exchange(any_server, request(any_server, method, path, AS_JSON, f"Content-Length: {1 << 40}"))
    assert (answer.status, problem(answer)["code"]) == (413, "BODY_TOO_LARGE")


def test_a_chunked_body_is_cut_off_at_the_limit(any_server: Api) -> None:
    head = request(any_server, "POST", RESOLVE, AS_JSON, "Transfer-Encoding: chunked")
    chunk = b"10000\r\n" + b"a" * 65536 + b"\r\n"
    answer = exchange(any_server, head, then=chunk, rounds=64)
    assert (answer.status, problem(answer)["code"]) == (413, "BODY_TOO_LARGE")


def test_without_a_token_a_body_is_not_read(any_server: Api) -> None:
    head = request(any_server, "POST", RESOLVE, AS_JSON, "Content-Length: 1000", token="wrong")
    # Waitress reads a whole body, of bounded size, before it asks the application; gunicorn's is never sent here.
    answer = exchange(any_server, head + (b"x" * 1000 if any_server.process is None else b""))
    assert (answer.status, problem(answer)["code"]) == (401, "UNAUTHORIZED")


@pytest.mark.parametrize(
    "data",
    [
        b"HELLO\r\n\r\n",
        b"GET /health\r\n\r\n",
        b"GET /health HTTP/9.9\r\n\r\n",
        b"GET http://[::1 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: x\r\nBad Header: 1\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: x\r\n folded: 1\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: x\r\nX: a\x00b\r\n\r\n",
        b"POST /health HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"POST /health HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        b"POST /health HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /health HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"POST /health HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 50 + b"\r\n\r\n",
        b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 70_000 + b"\r\n\r\n",
        b"GET /health HTTP/1.1\r\n" + b"".join(b"H%d: 1\r\n" % i for i in range(20_000)) + b"\r\n",
    ],
)
def test_what_is_not_http_is_a_4xx(any_server: Api, data: bytes) -> None:
    answer = exchange(any_server, data)
    assert answer.status < 500
    if answer.status >= 400:
        problem(answer)


def test_broken_chunks_are_400_and_the_next_request_is_served(any_server: Api) -> None:
    head = request(any_server, "POST", RESOLVE, AS_JSON, "Transfer-Encoding: chunked")
    answer = exchange(any_server, head + b"zz\r\n{}\r\n0\r\n\r\n")
    assert answer.status == 400
    with any_server.client() as client:
        assert client.get("/api/v1/sandboxes").status_code == 200


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_a_body_that_ends_early_is_400(any_server: Api, method: str, path: str) -> None:
    if any_server.process is not None and "/raw" in path:
        pytest.skip("the body is read by the owner's call, which this owner does not answer")
    head = request(any_server, method, path, AS_JSON, "Content-Length: 100")
    with socket.create_connection(any_server.host_port, timeout=60) as connection:
        connection.sendall(head + b"{")
        connection.shutdown(socket.SHUT_WR)
        received = b"".join(iter(lambda: connection.recv(65536), b""))
    assert received.startswith(b"HTTP/1.1 400")
    assert b"MALFORMED_REQUEST" in received
