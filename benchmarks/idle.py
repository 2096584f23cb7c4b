"""What sandboxes cost a worker: memory and processes of many idle ones, and of each running command."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from rich.table import Table

from benchmarks.cpu import family, memory_bytes, resident_bytes
from benchmarks.held import Sleeper
from benchmarks.service import Service
from benchmarks.wire import Connection
from benchmarks.workloads import Box

COUNT = 1000
_WARM = 20
_RUNNING = 20
_AT_ONCE = 8
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Footprint:
    """Of the worker with its spawner and all below; ``resident_bytes`` counts shared pages once for each process."""

    proportional_bytes: int
    resident_bytes: int
    processes: int

    @classmethod
    def of(cls, worker: int) -> Footprint:
        return cls(memory_bytes([worker]), resident_bytes([worker]), len(family([worker])))


def measure(service: Service, worker: int, count: int = COUNT) -> Table:
    """Resolves, connects and in the end releases ``count`` sandboxes."""
    connections = [Connection(service.url, service.token) for _ in range(_AT_ONCE)]
    for box in [Box(connections[0], f"warm-{number}") for number in range(_WARM)]:
        box.run(["true"])
        box.release()

    def make(lane: int) -> list[Box]:
        return [Box(connections[lane], f"idle-{number}") for number in range(lane, count, _AT_ONCE)]

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        before = Footprint.of(worker)
        lanes = list(pool.map(make, range(_AT_ONCE)))
        idle = Footprint.of(worker)
        sleepers = [Sleeper(connections[0], box) for box in lanes[0][:_RUNNING]]
        for sleeper in sleepers:
            sleeper.await_running()
        running = Footprint.of(worker)
        for sleeper in sleepers:
            sleeper.cancel()
        list(pool.map(release, lanes))
        after = Footprint.of(worker)
    for connection in connections:
        connection.close()
    return report(service.name, count, [before, idle, running, after])


def release(boxes: list[Box]) -> None:
    for box in boxes:
        box.release()


def report(name: str, count: int, found: list[Footprint]) -> Table:
    table = Table("when", "PSS MiB", "RSS sum MiB", "processes", title=f"{name}: the worker", title_justify="left")
    moments = ("no sandbox", f"{count} idle", f"and sleep in {_RUNNING} of them", "all released")
    for when, footprint in zip(moments, found, strict=True):
        sizes = (footprint.proportional_bytes / _MIB, footprint.resident_bytes / _MIB)
        table.add_row(when, *(f"{size:.1f}" for size in sizes), str(footprint.processes))
    before, idle, running, _ = found
    for what, more, less, number in (
        ("added by all idle ones", idle, before, 1),
        ("each idle one", idle, before, count),
        ("each running command", running, idle, _RUNNING),
    ):
        pss, rss = more.proportional_bytes - less.proportional_bytes, more.resident_bytes - less.resident_bytes
        sizes = (pss / number / _MIB, rss / number / _MIB)
        table.add_row(what, *(f"{size:.3f}" for size in sizes), f"{(more.processes - less.processes) / number:.1f}")
    return table
