"""What calls cost when there are a hundred times more routes: ``python -m benchmarks.growth [--full]``.

Two PostgreSQL databases with a hundred workers each, one with few routes and one with many (see
``tests.integration.domain.crowd``), are asked the same in turns. Wall time of a call, on one connection, and the
pages of tables and indexes that it looks into.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from rich.console import Console
from rich.table import Table
from sqlalchemy import Connection

from sandloom.db import Database, open_database
from sandloom.ids import ExecKey
from tests.integration.domain import crowd
from tests.integration.domain.world import TENANT, World, key
from tests.services.account import passable_directory, remove_tree
from tests.services.postgres import PostgresServer
from tests.services.process import stop_everything

WORKERS = 100
#: What a call may cost with many routes, against few.
BOUND = 1.5
_NUMBERS = itertools.count()

Call = Callable[[World], Any]


@dataclass(frozen=True, slots=True)
class Scale:
    few: int
    many: int
    rounds: int
    calls: int


SHORT = Scale(few=1_000, many=100_000, rounds=15, calls=8)
FULL = Scale(few=1_000, many=100_000, rounds=60, calls=20)


def command(world: World) -> None:
    """Admit, claim and finish."""
    number = next(_NUMBERS)
    route = world.sandboxes.get(key(crowd.live_box(number % 200 + 60)))
    record = world.queued(route, f"new-{number}", f"new-{number}")
    world.finish(world.claim(record) or record)


def lifecycle(world: World) -> None:
    """A sandbox that nobody knew, from resolve to release."""
    world.released(world.ready(f"new-{next(_NUMBERS)}"))


def nap(world: World) -> None:
    """Suspend and resume."""
    route = world.sandboxes.get(key(crowd.live_box(next(_NUMBERS) % 40)))
    world.suspensions.begin(route.fence)
    world.suspensions.finish(route.fence)
    world.sandboxes.mark_ready(world.suspensions.begin_resume(route.key, "benchmark")[0].fence)


def cancel(world: World) -> None:
    route = world.sandboxes.get(key(crowd.live_box(next(_NUMBERS) % 200 + 60)))
    world.execs.cancel(world.queued(route, f"cancel-{next(_NUMBERS)}", "cancel").key)


def reclaim(world: World) -> None:
    """The queries of a run in which nothing is due but what the calls before have moved."""
    for step in (
        world.reclaim.end_lost_execs, world.reclaim.end_queue_timeouts, world.reclaim.release_orphans,
        world.reclaim.begin_idle_releases, world.reclaim.stalled_releases, world.dormant.due, world.dormant.cut_short,
        world.dormant.begin_releases, world.dormant.unneeded_snapshots,
    ):  # fmt: skip
        if step():
            raise SystemExit(f"something was due: {step}")
    while world.reclaim.look_later():
        pass


def prune(world: World) -> None:
    for name in ("execs", "history", "operations", "uids", "sandboxes", "workers"):
        if getattr(world.pruning, name)():
            raise SystemExit(f"something was due: {name}")


def page(world: World, **asked: Any) -> Any:
    values = {"status": None, "workspace_scope_id": None, "search": None, "limit": 50, "offset": 0}
    return world.sandboxes.list(TENANT, **{**values, **asked})


CALLS: dict[str, Call] = {
    "resolve, known": lambda w: w.resolve(crowd.live_box(next(_NUMBERS) % 300)),
    "resolve, connect, release, new": lifecycle,
    "suspend and resume": nap,
    "admit, claim, finish": command,
    "admit and cancel": cancel,
    "route": lambda w: w.sandboxes.current(key(crowd.live_box(7)), 1),
    "events": lambda w: w.execs.events(ExecKey(TENANT, crowd.live_box(7), "run-0"), 0),
    "lease: renew": lambda w: w.fleet.renew("w1", 1, 600, {"running_execs": 1}),
    "lease: watch": lambda w: w.fleet.leases(),
    "worker: look at own queue": lambda w: w.execs.open_for("w1", 1),
    "maintenance: reclaim": reclaim,
    "maintenance: recount": lambda w: w.reclaim.recount_slots(),
    "maintenance: ring again": lambda w: w.reclaim.due_rings(),
    "maintenance: prune": prune,
    "admin: fleet": lambda w: (w.fleet.list_workers(), w.execs.open_counts()),
    "admin: audit": lambda w: w.sandboxes.audit(key(crowd.live_box(7))),
    "admin: commands of a sandbox": lambda w: w.execs.list(key(crowd.live_box(7)), 50, 0),
    "admin: newest sandboxes": page,
    "admin: newest of a status": partial(page, status="SUSPENDED"),
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.growth")
    parser.add_argument("--full", action="store_true", help="four times as many rounds")
    parser.add_argument("--only", nargs="+", help="calls whose names contain one of these")
    options = parser.parse_args()
    scale = FULL if options.full else SHORT
    wanted = {name: call for name, call in CALLS.items() if not options.only or any(o in name for o in options.only)}
    with databases(scale) as (few, many):
        table = Table(
            "call", f"{scale.few:,} routes, ms", f"{scale.many:,} routes, ms", "ratio", "pages", "pages", "ratio",
            title=f"PostgreSQL, {WORKERS} workers: medians of {scale.rounds} pairs", title_justify="left",
        )  # fmt: skip
        above = []
        for name, call in wanted.items():
            small, large, ratio = compare(call, few, many, scale)
            read = [pages(call, world, scale.calls) for world in (few, many)]
            in_pages = f"{read[0]:.0f}", f"{read[1]:.0f}", f"{read[1] / max(read[0], 1):.2f}"
            table.add_row(name, f"{small * 1e3:.2f}", f"{large * 1e3:.2f}", f"{ratio:.2f}", *in_pages)
            above += [name] if ratio > BOUND else []
        Console(width=110).print(table)
    stop_everything()
    if above:
        raise SystemExit(f"above {BOUND}: {', '.join(above)}")


@contextlib.contextmanager
def databases(scale: Scale) -> Iterator[tuple[World, World]]:
    directory = passable_directory("sandloom-bench")
    server = PostgresServer(directory / "postgres")
    server.start()
    opened: list[Database] = []
    try:
        for routes in (scale.few, scale.many):
            url = server.new_database()
            server.execute(f'ALTER DATABASE "{url.rsplit("/", 1)[1]}" SET synchronous_commit = off')
            opened.append(open_database(url, pool_size=1))
            crowd.fill(opened[-1], WORKERS, routes)
        server.execute("CHECKPOINT")
        yield World(opened[0]), World(opened[1])
    finally:
        for database in opened:
            database.dispose()
        server.stop()
        remove_tree(directory)


def compare(call: Call, few: World, many: World, scale: Scale) -> tuple[float, float, float]:
    """Median seconds of both, and the median of the ratios of the pairs."""
    pairs = []
    for world in (few, many):
        seconds(call, world, 3)
    for number in range(scale.rounds):
        pair = {}
        for world in (few, many) if number % 2 else (many, few):
            pair[world] = seconds(call, world, scale.calls)
        pairs.append((pair[few], pair[many]))
    small, large = (statistics.median(pair[side] for pair in pairs) for side in (0, 1))
    return small, large, statistics.median(b / a for a, b in pairs)


def pages(call: Call, world: World, count: int) -> float:
    """Pages that the server looked into for one call, which no other load on the machine changes."""
    before = _pages_so_far(world)
    for _ in range(count):
        call(world)
    return (_pages_so_far(world) - before) / count


def _pages_so_far(world: World) -> int:
    query = "SELECT pg_stat_get_db_blocks_fetched(oid) FROM pg_database WHERE datname = current_database()"

    def look(connection: Connection) -> int:
        connection.exec_driver_sql("SELECT pg_stat_force_next_flush()")
        return int(connection.exec_driver_sql(query).scalar_one())

    return world.db.read(look)


def seconds(call: Call, world: World, count: int) -> float:
    """Of one call, the fastest half of ``count``: what the machine does beside is not the subject."""
    taken = []
    for _ in range(count):
        began = time.perf_counter()
        call(world)
        taken.append(time.perf_counter() - began)
    return statistics.fmean(sorted(taken)[: max(1, count // 2)])


if __name__ == "__main__":
    main()
