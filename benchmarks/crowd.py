"""One command, and one cancel, of a tenant beside two thousand that another tenant has waiting."""

from __future__ import annotations

import itertools
import time

from rich.table import Table

from benchmarks.burst import quantile
from benchmarks.held import Sleeper
from benchmarks.service import SLOTS, Service
from benchmarks.wire import Connection
from benchmarks.workloads import Box

WAITING = 2_000
#: As many as a sandbox may have.
OF_A_SANDBOX = 16
SAMPLES = 10
#: So long that the crowd still waits when the last sample is taken.
_SECONDS = 10
_NUMBERS = itertools.count(1)


class Crowd:
    """A tenant whose sandboxes have as many commands waiting as they may."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._connection = self._connect()
        boxes = -(-(WAITING + SLOTS) // OF_A_SANDBOX)
        self._boxes = [Box(self._connection, f"crowd-{number}") for number in range(boxes)]

    def _connect(self) -> Connection:
        """Those that nobody uses for a while are closed by the service."""
        return Connection(self._service.url, self._service.token, "crowd")

    def wait_in_line(self) -> None:
        for _ in range(OF_A_SANDBOX):
            for box in self._boxes:
                name = f"crowd-{next(_NUMBERS)}"
                body = {"generation": box.generation, "exec_id": name, "exec_scope": name, "background": True}
                self._connection.call("POST", f"{box.path}/exec", {**body, "argv": ["sleep", str(_SECONDS)]})

    def waiting(self) -> int:
        return int(self._connect().call("GET", "/sandboxes/diagnostics/runtime")["queue_length"])

    def close(self) -> None:
        """Everything is ended with its sandbox."""
        connection = self._connect()
        for box in self._boxes:
            connection.call("DELETE", box.path)
        connection.close()


def measure(service: Service) -> Table:
    alone = samples(service)
    crowd = Crowd(service)
    crowd.wait_in_line()
    before = crowd.waiting()
    beside = samples(service)
    after = crowd.waiting()
    crowd.close()
    if after < WAITING // 2:
        raise SystemExit(f"only {after} commands were left waiting; nothing was measured")
    slot_ms = 1e3 * _SECONDS / SLOTS
    table = Table(
        "what", "alone p50 ms", "beside p50 ms", "beside p95 ms", "p50 : p50", "p95 less alone, in slots freed",
        title=f"{service.name}: one tenant beside {before} to {after} waiting commands of another",
        title_justify="left",
    )  # fmt: skip
    for what, idle, busy in zip(
        ("a command (true)", "a cancel, to the end of the command"), alone, beside, strict=True
    ):
        p50, crowded, p95 = (1e3 * value for value in (quantile(idle, 0.5), quantile(busy, 0.5), quantile(busy, 0.95)))
        slots = f"{(p95 - p50) / slot_ms:.1f}"
        table.add_row(what, f"{p50:.1f}", f"{crowded:.1f}", f"{p95:.1f}", f"{crowded / p50:.2f}", slots)
    return table


def samples(service: Service) -> tuple[list[float], list[float]]:
    """Seconds of commands, and of cancels of a command that runs."""
    connection = Connection(service.url, service.token, "modest")
    box = Box(connection, "modest")
    commands, cancels = [], []
    for _ in range(SAMPLES):
        began = time.perf_counter()
        box.run(["true"])
        commands.append(time.perf_counter() - began)
        sleeper = Sleeper(connection, box)
        sleeper.await_running()
        cancels.append(sleeper.cancel())
    connection.close()
    return commands, cancels
