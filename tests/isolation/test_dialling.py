"""Who answers a command without a password: real servers where there are some, else a few bytes of their protocol."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sandloom.execution import dial as dialling
from sandloom.execution.dial import PROGRAM, DialReport, dial
from sandloom.execution.probe import ProbeRequest
from sandloom.execution.spec import Network
from tests.isolation.kit import eventually, plan_for, probe_uid, with_enough_time
from tests.services.postgres import PostgresServer
from tests.services.redis import RedisServer

pytestmark = pytest.mark.bwrap


def target(protocol: str, port: int, **more: Any) -> dict[str, Any]:
    return {
        "name": protocol, "protocol": protocol, "host": "127.0.0.1", "port": port, "tls": False, "path": "/",
        "user": "sandloom", "database": "postgres", "socket": "", "remedy": f"close {protocol}", **more,
    }  # fmt: skip


@contextlib.contextmanager
def server(talk: Callable[[socket.socket], None]) -> Iterator[int]:
    """A listener that talks to whoever comes."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    peer, _ = listener.accept()
                    with peer, contextlib.suppress(OSError):
                        talk(peer)

        threading.Thread(target=serve, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


def says(*answers: bytes) -> Callable[[socket.socket], None]:
    def talk(peer: socket.socket) -> None:
        for answer in answers:
            peer.recv(4096)
            peer.sendall(answer)

    return talk


def greets(*answers: bytes) -> Callable[[socket.socket], None]:
    def talk(peer: socket.socket) -> None:
        for answer in answers:
            peer.sendall(answer)
            peer.recv(4096)

    return talk


def amqp(*method: int) -> bytes:
    body = struct.pack("!HH", *method) + bytes(8)
    return struct.pack("!BHI", 1, 0, len(body)) + body + b"\xce"


def mysql(body: bytes, number: int = 0) -> bytes:
    return struct.pack("<I", len(body) | number << 24) + body


# What the program does, with another limit: a server of these tests may stand still longer than it waits.
DIAL = """
import json, runpy, sys
program = runpy.run_path(sys.argv[1])
limits = dict.fromkeys(("CONNECT_SECONDS", "ANSWER_SECONDS", "LINK_SECONDS"), float(sys.argv[2]))
program["dial"].__globals__.update(limits)
json.dump(program["dial"](json.loads(sys.argv[3])), sys.stdout)
"""


def answers(*targets: dict[str, Any], seconds: float = 60) -> list[str]:
    """By the program alone, without a sandbox."""
    words = [sys.executable, "-I", "-c", DIAL, str(PROGRAM), str(seconds), json.dumps(targets)]
    done = subprocess.run(words, capture_output=True, check=True)
    return [answer for answer, _ in json.loads(done.stdout)]


GREETING = mysql(b"\x0a8.0.0\0" + bytes(40))


@pytest.mark.parametrize(
    ("protocol", "talk", "answer"),
    [
        ("redis", says(b"+PONG\r\n"), "open"),
        ("redis", says(b"-NOAUTH Authentication required.\r\n"), "guarded"),
        ("http", says(b"HTTP/1.1 200 OK\r\n\r\n"), "open"),
        ("http", says(b"HTTP/1.1 401 Unauthorized\r\n\r\n"), "guarded"),
        ("http", says(b"HTTP/1.1 302 Found\r\nLocation: /login\r\n\r\n"), "guarded"),
        ("http", says(b""), "closed"),
        # A token can be had from it by another request.
        ("metadata", says(b"HTTP/1.1 401 Unauthorized\r\n\r\n"), "open"),
        ("metadata", says(b"SSH-2.0-x\r\n"), "guarded"),
        ("amqp", says(amqp(10, 10), amqp(10, 30)), "open"),
        ("amqp", says(amqp(10, 10), amqp(10, 50)), "guarded"),
        ("amqp", says(amqp(10, 10), b""), "closed"),
        ("mysql", greets(GREETING, mysql(b"\0\0\0\2\0\0\0", 2)), "open"),
        ("mysql", greets(GREETING, mysql(b"\xfecaching_sha2_password\0", 2), mysql(b"\0\0\0", 4)), "open"),
        ("mysql", greets(GREETING, mysql(b"\xff\x15\x04#28000Access denied", 2)), "guarded"),
        ("postgresql", says(b"garbage"), "guarded"),
    ],
)
def test_what_a_protocol_calls_authentication(protocol, talk, answer):
    with server(talk) as port:
        assert answers(target(protocol, port)) == [answer]


def test_nobody_and_who_says_nothing_hold_up_no_one():
    with socket.create_server(("127.0.0.1", 0)) as silent, server(says(b"+PONG\r\n")) as port:
        quiet = silent.getsockname()[1]
        free = target("redis", 1)

        def attempt(seconds: float) -> bool:
            found = answers(free, target("redis", quiet), target("redis", port), seconds=seconds)
            assert found[:2] == ["closed", "closed"]
            return found[2] == "open"

        with_enough_time(attempt)


def test_a_unix_socket_is_dialled_by_its_path(tmp_path):
    path = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        thread = threading.Thread(target=lambda: says(b"+PONG\r\n")(listener.accept()[0]), daemon=True)
        thread.start()
        there, absent = target("redis", 0, socket=path), target("redis", 0, socket=f"{path}2")
        assert answers(there, absent) == ["open", "closed"]


@pytest.mark.server
def test_real_servers_with_and_without_a_password(redis_server: RedisServer, postgres: PostgresServer):
    guarded = [target("redis", redis_server.port), target("postgresql", postgres.port)]
    assert answers(*guarded) == ["guarded", "guarded"]
    hba = Path(postgres.directory, "data", "pg_hba.conf")
    kept = hba.read_text()
    try:
        hba.write_text("host all all 127.0.0.1/32 trust\n" + kept)
        postgres.execute("SELECT pg_reload_conf()")
        assert eventually(lambda: answers(target("postgresql", postgres.port)) == ["open"])
    finally:
        hba.write_text(kept)
        postgres.execute("SELECT pg_reload_conf()")


def dialled(*arguments: Any) -> DialReport:
    """From a sandbox; again while a loaded machine lets the time for an answer pass."""
    found: list[DialReport] = []

    def answered() -> bool:
        found.append(dial(*arguments))
        return "closed" not in [answer.answer for answer in found[-1].answers]

    assert eventually(answered)
    return found[-1]


@pytest.fixture
def request_here(state_dir) -> ProbeRequest:
    return ProbeRequest(state_dir, probe_uid(), probe_uid())


def test_a_sandbox_on_the_hosts_network_dials_and_one_without_does_not(level, report, spawner, request_here):
    plan = plan_for(level, report.plan)
    host = replace(plan, network=Network.HOST)
    with server(says(b"+PONG\r\n")) as port:
        wanted = [target("redis", port), target("http", 1, host="no-such-name.invalid")]
        found = dialled(request_here, host, spawner, wanted)
        assert (found.dialled_from, [answer.answer for answer in found.answers]) == ("sandbox", ["open"])
        said = f"redis answers commands in a sandbox without authentication at 127.0.0.1:{port} (+PONG): close redis"
        assert found.problems == [said]
        assert found.to_dict() == {"dialled_from": "sandbox", "open": ["redis"], "guarded": [], "closed": []}
        assert dial(request_here, plan, spawner, wanted).to_dict()["dialled_from"] is None


def test_where_a_sandbox_finds_no_python_the_worker_dials(report, spawner, request_here, monkeypatch):
    host = replace(report.plan, network=Network.HOST)
    monkeypatch.setattr(dialling, "_inside", lambda *_: None)
    with server(says(b"+PONG\r\n")) as port:
        found = dialled(request_here, host, spawner, [target("redis", port)])
    assert (found.dialled_from, len(found.problems)) == ("worker", 1)


def test_nothing_secret_is_in_what_the_program_is_told():
    from sandloom.settings import Settings
    from sandloom.settings.control_plane import control_plane

    secret = "only-the-worker-knows"
    targets = control_plane(
        Settings.load(
            {
                "SANDBOX_DATABASE_URL": f"postgresql://me:{secret}@db:5433/mine",
                "SANDBOX_BROKER_URL": f"amqp://guest:{secret}@mq//",
                "SANDBOX_BUS_URL": f"rediss://:{secret}@bus:7000/0",
                "SANDBOX_BLOBSTORE_ENDPOINT": "https://s3.internal",
                "SANDBOX_BLOBSTORE_SECRET_KEY": secret,
            }
        ),
        "http://[::1]:9",
    )
    assert secret not in json.dumps(targets)
    found = {(entry["protocol"], entry["host"], entry["port"]) for entry in targets}
    assert {("postgresql", "db", 5433), ("amqp", "mq", 5672), ("redis", "bus", 7000)} < found
    assert {("http", "s3.internal", 443), ("http", "::1", 9), ("http", "127.0.0.1", 5555)} < found
    assert ("metadata", "169.254.169.254", 80) in found
