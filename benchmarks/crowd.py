"""One command, and one cancel, of a tenant beside two thousand that another tenant has waiting."""

from __future__ import annotations

import itertools
import statistics
import time
from bisect import bisect
from typing import Any

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
        self._connection = Connection(service.url, service.token, "crowd")
        boxes = -(-(WAITING + SLOTS) // OF_A_SANDBOX)
        self._boxes = [Box(self._connection, f"crowd-{number}") for number in range(boxes)]

    def wait_in_line(self) -> None:
        for _ in range(OF_A_SANDBOX):
            for box in self._boxes:
                name = f"crowd-{next(_NUMBERS)}"
                body = {"generation": box.generation, "exec_id": name, "exec_scope": name, "background": True}
                self._connection.call("POST", f"{box.path}/exec", {**body, "argv": ["sleep", str(_SECONDS)]})

    def waiting(self) -> int:
        return int(self._connection.call("GET", "/sandboxes/diagnostics/runtime")["queue_length"])

    def started(self) -> list[str]:
        """When each of its commands began that did, in the order of time."""
        lists = [self._connection.call("GET", f"{box.path}/exec?limit=100")["execs"] for box in self._boxes]
        records = itertools.chain.from_iterable(lists)
        return sorted(record["started_at"] for record in records if record["started_at"])

    def close(self) -> None:
        """Everything is ended with its sandbox."""
        for box in self._boxes:
            self._connection.call("DELETE", box.path)
        self._connection.close()


def measure(service: Service) -> Table:
    alone, _, idle_cancels = samples(service)
    crowd = Crowd(service)
    crowd.wait_in_line()
    before = crowd.waiting()
    beside, records, cancels = samples(service)
    after, started = crowd.waiting(), crowd.started()
    crowd.close()
    if after < WAITING // 2:
        raise SystemExit(f"only {after} commands were left waiting; nothing was measured")
    ahead = [bisect(started, record["started_at"]) - bisect(started, record["created_at"]) for record in records]
    table = Table(
        "what", "alone p50 ms", "beside p50 ms", "beside p95 ms", "p50 : p50", "of the crowd, begun meanwhile",
        title=f"{service.name}: one tenant beside {before} to {after} waiting commands of another",
        title_justify="left",
    )  # fmt: skip
    for what, idle, busy, most in (
        ("a command (true)", alone, beside, f"at most {max(ahead)}, {statistics.median(ahead):g} in the middle"),
        ("a cancel, to the end of the command", idle_cancels, cancels, ""),
    ):
        p50, crowded, p95 = (1e3 * value for value in (quantile(idle, 0.5), quantile(busy, 0.5), quantile(busy, 0.95)))
        table.add_row(what, f"{p50:.1f}", f"{crowded:.1f}", f"{p95:.1f}", f"{crowded / p50:.2f}", most)
    return table


def samples(service: Service) -> tuple[list[float], list[dict[str, Any]], list[float]]:
    """Seconds of commands, their records, and seconds of cancels of a command that runs."""
    connection = Connection(service.url, service.token, "modest")
    box = Box(connection, "modest")
    commands, records, cancels = [], [], []
    for _ in range(SAMPLES):
        began = time.perf_counter()
        records.append(box.run(["true"]))
        commands.append(time.perf_counter() - began)
        sleeper = Sleeper(connection, box)
        sleeper.await_running()
        cancels.append(sleeper.cancel())
    connection.close()
    return commands, records, cancels
