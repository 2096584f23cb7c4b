"""What a command costs: ``make bench``, or ``make bench ARGS="--count 500"``.

Runs ``true`` in sandboxes of an embedded service of its own, or of the one that SANDBOX_BASE_URL and
SANDBOX_INTERNAL_TOKEN name, and beside it bubblewrap alone, started by this process. The ratio says more than the
milliseconds: those are the machine's. A run that fails counts as an error and ends the benchmark.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count

from rich.console import Console
from rich.table import Table

from sandloom import Client
from sandloom.cli.local_service import local_service
from tests.services.bubblewrap import find_bwrap

Work = Callable[[int], None]


def main() -> None:
    options = parse()
    with service() as (url, token), Client(url, token) as client:
        table = Table("what", "at once", "p50 ms", "p95 ms", "per second", "p50 : bwrap", "per second : bwrap")
        for at_once in options.at_once:
            floor = measure(bwrap_alone, options.count, at_once)
            row(table, "bwrap alone", at_once, floor, floor)
            with boxes(client, at_once) as command:
                row(table, "a command", at_once, measure(command, options.count, at_once), floor)
        row(table, "create, run, release", 1, measure(lifecycle(client), max(options.count // 10, 5), 1), None)
    Console(width=110).print(table)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench")
    parser.add_argument("--count", type=int, default=200, help="commands of each measurement")
    parser.add_argument("--at-once", type=int, nargs="*", default=[1, 4, 16], help="how many at the same time")
    return parser.parse_args()


@contextlib.contextmanager
def service() -> Iterator[tuple[str, str]]:
    if "SANDBOX_BASE_URL" in os.environ:
        yield os.environ["SANDBOX_BASE_URL"], os.environ["SANDBOX_INTERNAL_TOKEN"]
        return
    with local_service(os.environ) as own:
        yield own.url, own.token


def bwrap_alone(_: int) -> None:
    argv = [find_bwrap(), "--unshare-all", "--unshare-user", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev"]
    pid = os.posix_spawn(argv[0], [*argv, "true"], {"PATH": "/usr/bin:/bin"})
    if os.waitpid(pid, 0)[1] != 0:
        raise SystemExit("bubblewrap failed; a failing run is fast, so this says nothing")


@contextlib.contextmanager
def boxes(client: Client, number: int) -> Iterator[Work]:
    """A sandbox for each command at once; a command waits for no other of its sandbox."""
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(client.sandbox(f"bench-{n}", scope="bench")) for n in range(number)]

        def command(slot: int) -> None:
            if not opened[slot].run(["true"]).ok:
                raise SystemExit("a command failed")

        yield command


def lifecycle(client: Client) -> Work:
    numbers = count()

    def live(_: int) -> None:
        with client.sandbox(f"bench-life-{next(numbers)}", scope="bench") as box:
            if not box.run(["true"]).ok:
                raise SystemExit("a command failed")

    return live


def measure(work: Work, total: int, at_once: int) -> tuple[list[float], float]:
    """Seconds of each run, and of all; a few runs before do not count."""
    for slot in range(at_once):
        work(slot)

    def lane(slot: int) -> list[float]:
        return [timed(work, slot) for _ in range(max(total // at_once, 1))]

    started = time.perf_counter()
    with ThreadPoolExecutor(at_once) as pool:
        seconds = [value for values in pool.map(lane, range(at_once)) for value in values]
    return seconds, time.perf_counter() - started


def timed(work: Work, slot: int) -> float:
    started = time.perf_counter()
    work(slot)
    return time.perf_counter() - started


def row(
    table: Table, what: str, at_once: int, found: tuple[list[float], float], floor: tuple[list[float], float] | None
) -> None:
    seconds, all_seconds = found
    median, rate = statistics.median(seconds), len(seconds) / all_seconds
    ratios = ["", ""]
    if floor is not None:
        ratios = [f"{median / statistics.median(floor[0]):.2f}", f"{rate / (len(floor[0]) / floor[1]):.2f}"]
    p95 = statistics.quantiles(seconds, n=20)[-1]
    table.add_row(what, str(at_once), f"{median * 1e3:.1f}", f"{p95 * 1e3:.1f}", f"{rate:.0f}", *ratios)


if __name__ == "__main__":
    main()
