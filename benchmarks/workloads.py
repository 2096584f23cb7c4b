"""What is asked of a service."""

from __future__ import annotations

import base64
import itertools
import statistics
import threading
from typing import Any

from benchmarks.burst import Burst, run_burst
from benchmarks.cpu import cpu_seconds
from benchmarks.service import Service
from benchmarks.wire import Connection

_WAIT_SECONDS = 60
_RUN = itertools.count(1)


class Box:
    """A sandbox on a connection that no other thread uses."""

    def __init__(self, connection: Connection, name: str) -> None:
        self._connection = connection
        self.path = f"/sandboxes/{name}"
        body = {"sandbox_id": name, "workspace_scope_id": "bench", "profile": "coding-default"}
        self.generation = connection.call("POST", "/sandboxes/resolve", body)["generation"]
        connection.call("POST", self.path, {"generation": self.generation})

    def run(self, argv: list[str], connection: Connection | None = None) -> dict[str, Any]:
        """The record of a command in a scope of its own, awaited in the foreground."""
        name = f"run-{next(_RUN)}"
        body = {"generation": self.generation, "exec_id": name, "argv": argv, "exec_scope": name}
        record: dict[str, Any] = (connection or self._connection).call(
            "POST", f"{self.path}/exec", body, wait_seconds=_WAIT_SECONDS
        )
        if record["status"] != "SUCCEEDED" or record["exit_code"] != 0:
            raise SystemExit(f"a command failed: {record}")
        return record

    def write(self, data: bytes) -> None:
        content = base64.b64encode(data).decode("ascii")
        body = {"generation": self.generation, "path": "/workspace/file", "content_base64": content}
        self._connection.call("PUT", f"{self.path}/files", body)

    def read(self, data: bytes) -> None:
        query = f"generation={self.generation}&path=/workspace/file"
        answer = self._connection.call("GET", f"{self.path}/files?{query}")
        if base64.b64decode(answer["content_base64"]) != data:
            raise SystemExit("a file has another content than was written")

    def release(self) -> None:
        self._connection.call("DELETE", f"{self.path}?generation={self.generation}")


class Commands:
    """A target: each client has a connection and a sandbox, and runs one foreground command after the other."""

    def __init__(self, service: Service, clients: int) -> None:
        self.name = service.name
        self.service = service
        self.connections = [Connection(service.url, service.token) for _ in range(clients)]
        self.boxes = [Box(connection, f"bench-{n}") for n, connection in enumerate(self.connections)]

    def burst(self, count: int, at_once: int) -> Burst:
        return self.run(lambda lane: self.boxes[lane].run(["true"]), count, at_once)

    def run(self, work: Any, count: int, at_once: int) -> Burst:
        return run_burst(work, count, at_once, lambda: cpu_seconds(self.service.parts.values()))


class Lives:
    """A target: make a sandbox ready and release it."""

    def __init__(self, commands: Commands) -> None:
        self.name = f"{commands.name} create+release"
        self._commands = commands
        self._numbers = itertools.count()

    def burst(self, count: int, at_once: int) -> Burst:
        def live(lane: int) -> None:
            Box(self._commands.connections[lane], f"life-{next(self._numbers)}").release()

        return self._commands.run(live, count, at_once)


class EarlierShape:
    """A target: 60 sandboxes, ``/bin/sh -c 'printf x'``, each in a scope of its own; connections as many as at once."""

    SANDBOXES = 60

    def __init__(self, commands: Commands) -> None:
        self.name = f"{commands.name} 60 sandboxes"
        self._commands = commands
        first = commands.connections[0]
        self._boxes = [Box(first, f"shape-{n}") for n in range(self.SANDBOXES)]
        self._next = itertools.count()

    def burst(self, count: int, at_once: int) -> Burst:
        def command(lane: int) -> None:
            box = self._boxes[next(self._next) % self.SANDBOXES]
            record = box.run(["/bin/sh", "-c", "printf x"], self._commands.connections[lane])
            if record["stdout"] != "x":
                raise SystemExit(f"output was lost: {record}")

        return self._commands.run(command, count, at_once)


def files(commands: Commands, count: int, size_bytes: int) -> dict[str, Burst]:
    data = bytes(range(256)) * (size_bytes // 256)
    box = commands.boxes[0]
    return {
        "write": commands.run(lambda _: box.write(data), count, 1),
        "read": commands.run(lambda _: box.read(data), count, 1),
    }


def budget(commands: Commands, count: int) -> dict[str, float]:
    """Milliseconds of one serial command: where they go, by the record, and CPU by process."""
    parts = commands.service.parts
    before = {name: cpu_seconds([pid]) for name, pid in parts.items()}
    records: list[dict[str, Any]] = []
    lock = threading.Lock()

    def command(_: int) -> None:
        record = commands.boxes[0].run(["true"])
        with lock:
            records.append(record)

    total_ms = 1e3 * commands.run(command, count, 1).p50
    queued_ms = statistics.median(record["queued_ms"] for record in records)
    run_ms = statistics.median(record["duration_ms"] for record in records)
    rows = {
        "seen by the client": total_ms,
        "  admitted to claimed (ring, deliver, claim)": queued_ms,
        "  engine (spawn, run, collect)": run_ms,
        "  rest (HTTP, admit, finish, wake)": total_ms - queued_ms - run_ms,
    }
    for name, pid in parts.items():
        rows[f"CPU, {name} and all below"] = 1e3 * (cpu_seconds([pid]) - before[name]) / count
    return rows
