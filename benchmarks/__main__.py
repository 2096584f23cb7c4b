"""What a command costs against bubblewrap alone: ``make bench``, or ``make bench ARGS=--full``.

The floor is ``setpriv`` + ``bwrap`` with the namespaces of strict + ``true``, started by a small parent. Floor and
target alternate in pairs, and what counts is the median of the pairs' ratios with its 95 % bootstrap interval: the
milliseconds are the machine's. A command that fails ends the run.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from benchmarks import crowd, held, idle, kept, starts
from benchmarks.bare import BEST_AT_ONCE, Floor
from benchmarks.burst import Burst, Target, alternate, ratio
from benchmarks.engine import engine
from benchmarks.files import MIB, FileCalls, Line
from benchmarks.service import Service, embedded, fleet
from benchmarks.workloads import Commands, EarlierShape, Lives, budget, files

CONSOLE = Console(width=140)
COMMANDS = ("starts", "engine", "embedded", "fleet", "files", "kept")
#: What is asked of a worker beside commands: not in the short run unless it is asked for.
NODE = ("lives", "idle", "held", "crowd")
#: ``lives`` at once: create and release wait for disks and messages, so more of them find the best rate.
LIVES_AT_ONCE = (4, 16)


@dataclass(frozen=True, slots=True)
class Scale:
    """``pairs`` of ``serial`` commands one at a time, and of ``parallel`` ones at each of ``clients``.

    ``kept_bytes``: of a workspace whose snapshot is made and restored in ``kept_pairs``.
    """

    pairs: int
    serial: int
    parallel: int
    clients: tuple[int, ...]
    shape: int
    kept_pairs: int
    kept_bytes: int


SHORT = Scale(5, serial=20, parallel=64, clients=(32,), shape=120, kept_pairs=3, kept_bytes=64 * MIB)
FULL = Scale(15, serial=40, parallel=200, clients=(16, 32, 64), shape=600, kept_pairs=5, kept_bytes=1024 * MIB)


def main() -> None:
    options = parse()
    scale = FULL if options.full else SHORT
    with Floor() as floor:
        floor.burst(10, BEST_AT_ONCE)
        if "starts" in options.only:
            measure_lines("programs that start", starts.imports(), floor, scale.pairs)
        if "engine" in options.only:
            measure_engine(floor, scale)
        for name, start in (("embedded", embedded), ("fleet", fleet)):
            if name in options.only:
                with start() as service:
                    measure_service(service, floor, scale)
        if "files" in options.only:
            with embedded() as service, FileCalls(service) as lines:
                measure_lines("files, over HTTP to the embedded service", lines, floor, scale.pairs)
        if "kept" in options.only:
            with kept.snapshots(scale.kept_bytes) as lines:
                measure_lines("snapshots, to and from an S3 server", lines, floor, scale.kept_pairs)
            with embedded() as service, kept.attaching(service) as lines:
                measure_lines("templates, over HTTP to the embedded service", lines, floor, scale.pairs)
        measure_node(set(options.only), floor, scale)


def measure_node(wanted: set[str], floor: Floor, scale: Scale) -> None:
    """What is asked of the worker beside commands."""
    for name, start in (("embedded", embedded), ("fleet", fleet)):
        if not wanted & {"lives", "held", "crowd", *(("idle",) if name == "fleet" else ())}:
            continue
        with start() as service:
            if "lives" in wanted:
                lives(service, floor, scale)
            if "held" in wanted:
                CONSOLE.print(held.report(name, *held.Held(service).measure()))
            if "crowd" in wanted:
                CONSOLE.print(crowd.measure(service))
            if "idle" in wanted and name == "fleet":
                CONSOLE.print(idle.measure(service, service.parts["worker"]))


def lives(service: Service, floor: Floor, scale: Scale) -> None:
    table = comparison(f"{service.name}: resolve, connect and release, over HTTP")
    target = Lives(Commands(service, max(LIVES_AT_ONCE)))
    for at_once in LIVES_AT_ONCE:
        parallel(table, target, floor, scale, at_once)
    CONSOLE.print(table)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench")
    everything = f"15 pairs, 16 to 64 clients, snapshots of 1 GiB, and {', '.join(NODE)}"
    parser.add_argument("--full", action="store_true", help=everything)
    parser.add_argument("--only", nargs="+", choices=(*COMMANDS, *NODE))
    options = parser.parse_args()
    options.only = options.only or (COMMANDS + NODE if options.full else COMMANDS)
    return options


def measure_engine(floor: Floor, scale: Scale) -> None:
    table = comparison("engine alone, in this process")
    for native in (True, False):
        with engine(native=native) as target:
            serial(table, target, floor, scale)
            parallel(table, target, floor, scale, BEST_AT_ONCE)
    CONSOLE.print(table)


def measure_service(service: Service, floor: Floor, scale: Scale) -> None:
    commands = Commands(service, max(scale.clients))
    table = comparison(f"{service.name}, over HTTP")
    serial(table, commands, floor, scale)
    for clients in scale.clients:
        parallel(table, commands, floor, scale, clients)
    shape = alternate(EarlierShape(commands), floor, 1, scale.shape, at_once=32, floor_at_once=BEST_AT_ONCE)
    throughput_row(table, f"{service.name} 60 sandboxes", 32, shape)
    CONSOLE.print(table)
    CONSOLE.print(details(service, commands, scale))


def measure_lines(title: str, lines: list[Line], floor: Floor, count: int) -> None:
    """``count`` pairs of each."""
    columns = ("call", "p50 ms", "against", "its p50 ms", "p50 : its p50")
    table = Table(*columns, title=title, title_justify="left")
    for line in lines:
        bare = line.against(floor)
        pairs = alternate(line.call, bare, count, line.count, at_once=1, floor_at_once=1)
        ours, theirs = (statistics.median(p50(pair[side]) for pair in pairs) * 1e3 for side in (0, 1))
        table.add_row(line.call.name, f"{ours:.1f}", bare.name, f"{theirs:.1f}", str(ratio(pairs, p50)))
    CONSOLE.print(table)


def details(service: Service, commands: Commands, scale: Scale) -> Table:
    table = Table("what", "value", title=f"{service.name}: one command at a time, and the rest", title_justify="left")
    for what, milliseconds in budget(commands, scale.pairs * scale.serial).items():
        table.add_row(what, f"{milliseconds:.2f} ms")
    for what, burst in files(commands, scale.serial, 4096).items():
        table.add_row(f"file {what}, 4 KiB: p50, p95", f"{burst.p50 * 1e3:.2f} ms, {burst.p95 * 1e3:.2f} ms")
    return table


def comparison(title: str) -> Table:
    columns = ("what", "at once", "p50 ms", "p95 ms", "per second", "CPU ms each")
    ratios = ("p50 : floor", "p95 : floor", "per second : floor", "CPU : floor")
    return Table(*columns, *ratios, title=title, title_justify="left")


Pairs = list[tuple[Burst, Burst]]


def serial(table: Table, target: Target, floor: Floor, scale: Scale) -> None:
    pairs = alternate(target, floor, scale.pairs, scale.serial, at_once=1, floor_at_once=1)
    absolute(table, "floor", 1, [bare for _, bare in pairs])
    compared = [str(ratio(pairs, of)) for of in (p50, p95)]
    absolute(table, target.name, 1, [ours for ours, _ in pairs], *compared, "", str(ratio(pairs, cpu_each)))


def parallel(table: Table, target: Target, floor: Floor, scale: Scale, at_once: int) -> None:
    pairs = alternate(target, floor, scale.pairs, scale.parallel, at_once=at_once, floor_at_once=BEST_AT_ONCE)
    throughput_row(table, target.name, at_once, pairs)


def throughput_row(table: Table, name: str, at_once: int, pairs: Pairs) -> None:
    """Against the best throughput of the floor, whatever the number of clients."""
    compared = ("", "", str(ratio(pairs, per_second)), str(ratio(pairs, cpu_each)))
    absolute(table, name, at_once, [ours for ours, _ in pairs], *compared)


def absolute(table: Table, what: str, at_once: int, bursts: list[Burst], *ratios: str) -> None:
    seconds = [value for burst in bursts for value in burst.seconds]
    wall, cpu = (sum(map(of, bursts)) for of in (lambda b: b.wall_seconds, lambda b: b.cpu_seconds))
    every = Burst(seconds, wall, cpu)
    numbers = (every.p50 * 1e3, every.p95 * 1e3, every.per_second, every.cpu_each * 1e3)
    table.add_row(what, str(at_once), *(f"{number:.1f}" for number in numbers), *ratios)


def p50(burst: Burst) -> float:
    return burst.p50


def p95(burst: Burst) -> float:
    return burst.p95


def per_second(burst: Burst) -> float:
    return burst.per_second


def cpu_each(burst: Burst) -> float:
    return burst.cpu_each


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
