"""Large bodies, straight to the worker: whole, fenced, signed."""

from __future__ import annotations

import base64
import hashlib
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from sandloom.broker.envelope import SigningKey
from sandloom.errors import (
    EnvelopeRefused,
    FileMissing,
    FilePathLocked,
    FileTooLarge,
    NotFound,
    PathInvalid,
    RangeNotSatisfiable,
    StaleRoute,
    Unavailable,
)  # fmt: skip
from sandloom.files.channel import ENVELOPE_HEADER, ByteChannel
from sandloom.sandboxes.records import Route
from tests.acceptance.worker_fleet import WorkerFleet, until

pytestmark = [pytest.mark.bwrap, pytest.mark.slow]
MIB = 1 << 20


@pytest.fixture
def fleet(postgres_url: str, redis_url: str, data_dir: Path) -> Iterator[WorkerFleet]:
    fleet = WorkerFleet(postgres_url, redis_url, data_dir)
    fleet.start_worker()
    yield fleet
    fleet.close()


@pytest.fixture
def channel(fleet: WorkerFleet) -> Iterator[ByteChannel]:
    channel = ByteChannel(fleet.services.keys.fleet)
    yield channel
    channel.close()


def put(channel: ByteChannel, route: Route, path: str, data: bytes, max_bytes: int = 100 * MIB) -> None:
    channel.write(route, path, [data], len(data), None, max_bytes)


def get(channel: ByteChannel, route: Route, path: str, span: str | None = None) -> bytes:
    file = channel.read(route, path, span)
    try:
        return b"".join(file.chunks)
    finally:
        file.close()


@pytest.mark.root
def test_bytes_come_back_as_they_went(fleet: WorkerFleet, channel: ByteChannel) -> None:
    route = fleet.ready()
    data = bytes(range(256)) * (20 * MIB // 256)
    put(channel, route, "/workspace/large", data)
    inside = fleet.run(route, "sha256sum < /workspace/large; stat -c %a:%u /workspace/large").stdout
    assert inside == f"{hashlib.sha256(data).hexdigest()}  -\n600:{route.sandbox_uid}\n".encode()
    assert get(channel, route, "/workspace/large") == data
    assert get(channel, route, "/workspace/large", "bytes=255-257") == data[255:258]
    # Without a length the body is chunked.
    channel.write(route, "/workspace/chunked", iter([b"a" * MIB, b"b"]), None, 0o640, 100 * MIB)
    assert fleet.run(route, "stat -c %a:%s /workspace/chunked").stdout == f"640:{MIB + 1}\n".encode()


def test_refusals_have_their_names(fleet: WorkerFleet, channel: ByteChannel) -> None:
    route = fleet.ready()
    put(channel, route, "/workspace/a", b"0123456789")
    with pytest.raises(FileMissing):
        get(channel, route, "/workspace/missing")
    with pytest.raises(FileMissing):
        put(channel, route, "/workspace/no/such/parent", b"x" * (5 * MIB))
    with pytest.raises(FileTooLarge):
        put(channel, route, "/workspace/a", b"x" * (5 * MIB), max_bytes=MIB)
    with pytest.raises(PathInvalid):
        put(channel, route, "/etc/passwd", b"x")
    with pytest.raises(RangeNotSatisfiable):
        get(channel, route, "/workspace/a", "bytes=10-")
    assert get(channel, route, "/workspace/a") == b"0123456789"


def test_only_the_fleet_and_only_the_current_route_get_through(fleet: WorkerFleet, channel: ByteChannel) -> None:
    route = fleet.ready()
    put(channel, route, "/workspace/a", b"untouched")
    for wrong in (
        replace(route, worker_epoch=route.worker_epoch + 1),
        replace(route, worker_id="other"),
        replace(route, generation=route.generation + 1),
    ):
        with pytest.raises(StaleRoute):
            put(channel, wrong, "/workspace/a", b"changed")
    forger = ByteChannel(SigningKey("fleet", b"guessed"))
    with pytest.raises(EnvelopeRefused):
        get(forger, route, "/workspace/a")
    with pytest.raises(EnvelopeRefused):
        put(forger, route, "/workspace/a", b"changed" * MIB)
    forger.close()
    plain = httpx.get(f"{route.data_endpoint}/internal/v1/raw", timeout=60, trust_env=False)
    assert (plain.status_code, plain.json()["code"]) == (403, EnvelopeRefused.code)
    elsewhere = httpx.get(f"{route.data_endpoint}/etc/passwd", timeout=60, trust_env=False)
    assert (elsewhere.status_code, elsewhere.json()["code"]) == (404, NotFound.code)
    assert get(channel, route, "/workspace/a") == b"untouched"


def test_an_upload_that_breaks_off_leaves_the_old_file(fleet: WorkerFleet, channel: ByteChannel) -> None:
    route = fleet.ready()
    put(channel, route, "/workspace/a", b"old")

    def breaking() -> Iterator[bytes]:
        yield b"n" * MIB
        raise ConnectionError("the client is gone")

    def content() -> bytes | None:
        """None while the worker has not yet seen that the upload ended, and keeps the path."""
        try:
            return get(channel, route, "/workspace/a")
        except FilePathLocked:
            return None

    for announced in (10 * MIB, None):
        with pytest.raises((ConnectionError, Unavailable)):
            channel.write(route, "/workspace/a", breaking(), announced, None, 100 * MIB)
        until(lambda: content() is not None)
        assert content() == b"old"
    assert fleet.run(route, "ls -A /workspace").stdout == b"a\n"


def test_garbage_on_the_channel_does_not_stop_it(fleet: WorkerFleet, channel: ByteChannel) -> None:
    route = fleet.ready()
    put(channel, route, "/workspace/a", b"fine")
    address = urlsplit(route.data_endpoint)
    assert address.hostname is not None
    for garbage in (
        b"\x00\xff" * 100,
        b"GET " + b"/" * 100_000,
        b"PUT /internal/v1/raw HTTP/1.1\r\nContent-Length: x\r\n\r\n",
    ):
        with socket.create_connection((address.hostname, address.port or 0), timeout=60) as client:
            client.sendall(garbage)
    assert get(channel, route, "/workspace/a") == b"fine"


def test_a_stranger_is_not_listened_to(fleet: WorkerFleet, channel: ByteChannel) -> None:
    """Neither the body of an unsigned request is read, nor does silence hold a thread that the fleet needs."""
    route = fleet.ready()
    address = urlsplit(route.data_endpoint)
    assert address.hostname is not None
    endless = b"PUT /internal/v1/raw HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n"
    with socket.create_connection((address.hostname, address.port or 0), timeout=60) as client:
        client.sendall(endless)
        # An answer, and then the end, although the request goes on.
        answer = b"".join(iter(lambda: client.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 403")
    assert b"SANDBOX_ENVELOPE_REFUSED" in answer
    nested = base64.b64encode(b"[" * 20_000).decode()
    refused = httpx.get(
        f"{route.data_endpoint}/internal/v1/raw", headers={ENVELOPE_HEADER: nested}, timeout=60, trust_env=False
    )
    assert (refused.status_code, refused.json()["code"]) == (403, "SANDBOX_ENVELOPE_REFUSED")


def test_two_lengths_of_one_body_are_refused(fleet: WorkerFleet, channel: ByteChannel) -> None:
    route = fleet.ready()
    address = urlsplit(route.data_endpoint)
    assert address.hostname is not None
    headers = channel._headers(route, "raw.write", {"path": "/workspace/a", "mode": None, "max_bytes": 100})
    request = (
        f"PUT /internal/v1/raw HTTP/1.1\r\nHost: x\r\n{ENVELOPE_HEADER}: {headers[ENVELOPE_HEADER]}\r\n"
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
    )
    with socket.create_connection((address.hostname, address.port or 0), timeout=60) as client:
        client.sendall(request.encode())
        answer = b"".join(iter(lambda: client.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 400")
    with pytest.raises(FileMissing):
        get(channel, route, "/workspace/a")


@pytest.mark.root
def test_a_sandbox_cannot_hold_the_channel(fleet: WorkerFleet, channel: ByteChannel) -> None:
    """On the host's network a command reaches the port; its connections are closed before they take a thread."""
    route = fleet.ready()
    port = urlsplit(route.data_endpoint).port
    script = (
        "import socket\n"
        f"held = [socket.create_connection(('127.0.0.1', {port}), 60) for _ in range(150)]\n"
        "print(all(s.recv(1) == b'' for s in held), flush=True)\n"
    )
    key = fleet.start(route, ["/usr/bin/python3", "-c", script])
    put(channel, route, "/workspace/b", b"meanwhile")
    assert get(channel, route, "/workspace/b") == b"meanwhile"
    assert fleet.ended(key).stdout == b"True\n"
