"""Readers that stop reading: they cost a bounded piece of memory each, the writer nothing, and get everything later."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx

from benchmarks.cpu import family, resident_bytes
from sandloom.sdk.events import Frame, frames
from tests.integration.api.servers import TOKEN, Api

EVENTS = "/api/v1/sandboxes/box/exec/run-1/events"
READERS = 12
NUMBER = 100
DATA = b"x" * 65_536
#: A page, what is made of it, and what a thread's allocator keeps.
MAX_BYTES_EACH = 5 << 20


class StuckReader:
    """Asks for the stream and reads nothing of it until ``frames``."""

    def __init__(self, api: Api) -> None:
        self._socket = socket.socket()
        # What the kernel takes for it is not the server's.
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        url = httpx.URL(api.url)
        assert url.port is not None
        self._socket.connect((url.host, url.port))
        lines = [
            f"GET {EVENTS} HTTP/1.1", f"Host: {url.host}", f"Authorization: Bearer {TOKEN}",
            f"X-Sandbox-Tenant: {api.tenant_id}", "Connection: close", "", "",
        ]  # fmt: skip
        self._socket.sendall("\r\n".join(lines).encode())
        self._socket.settimeout(60)

    def await_first_byte(self) -> None:
        assert self._socket.recv(1, socket.MSG_PEEK)

    def frames(self) -> Iterator[Frame]:
        stream = self._socket.makefile("rb")
        assert b" 200 " in stream.readline()
        headers = {line.strip().lower() for line in iter(stream.readline, b"\r\n")}
        assert b"x-accel-buffering: no" in headers
        chunked = b"transfer-encoding: chunked" in headers
        yield from frames(_chunks(stream) if chunked else iter(lambda: stream.read1(65536), b""))

    def close(self) -> None:
        self._socket.close()


def _chunks(stream: object) -> Iterator[bytes]:
    while size := int(stream.readline(), 16):  # type: ignore[attr-defined]
        yield stream.read(size)  # type: ignore[attr-defined]
        stream.readline()  # type: ignore[attr-defined]


def test_they_hold_little_and_nobody_up(pair: Api) -> None:
    generation = pair.ready_sandbox()
    with pair.client() as http, ExitStack() as stack:
        body = {"exec_id": "run-1", "generation": generation, "argv": ["true"], "background": True}
        assert http.post("/api/v1/sandboxes/box/exec", json=body).status_code == 202
        record = pair.owner.claim("box", "run-1", generation)
        seq = record.last_seq
        for _ in range(NUMBER):
            seq = pair.owner.write(record, ("stdout", DATA), after=seq)
        # What a first page makes the process load is not theirs.
        assert http.get(EVENTS, params={"after": 3, "wait": 0}).status_code == 200
        before = memory(pair)
        stuck = [StuckReader(pair) for _ in range(READERS)]
        for reader in stuck:
            stack.callback(reader.close)
            reader.await_first_byte()
        # One who reads has it all while the others have nothing, and nothing holds up the writer.
        ended = threading.Event()
        following = threading.Thread(target=follow, args=(pair, ended))
        following.start()
        seq = pair.owner.write(record, ("stdout", DATA), after=seq)
        pair.owner.finish(record, after=seq)
        assert ended.wait(60)
        following.join()
        assert http.get("/api/v1/sandboxes/box").status_code == 200
        after = memory(pair)
        if before is not None and after is not None:
            assert after - before < READERS * MAX_BYTES_EACH < READERS * NUMBER * len(DATA)
        for reader in stuck[:2]:
            found = list(reader.frames())
            assert [frame.id for frame in found] == [*map(str, range(1, seq + 2)), None]
            assert found[-1].event == "end"


def follow(api: Api, ended: threading.Event) -> None:
    with api.client() as http, http.stream("GET", EVENTS, timeout=60) as response:
        if [frame.event for frame in frames(response.iter_raw())][-1] == "end":
            ended.set()


def memory(api: Api) -> int | None:
    """Of a server that is a process of its own."""
    if api.process is None or not Path("/proc/self/smaps_rollup").exists():
        return None
    return resident_bytes(family([api.process.pid]))
