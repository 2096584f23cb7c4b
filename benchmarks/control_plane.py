"""CPU of the control plane: ``python -m benchmarks.control_plane [--count 400] [--database sqlite postgresql]``.

A command goes through admit, claim, finish and get, with no worker and no message; beside them stand the calls of a
file operation and of a heartbeat. The floor is the driver alone: the statements of the same calls as they were sent
once, executed again in the same order with the same round trips. Both take turns. Process CPU time is counted, of all
threads, so what a PostgreSQL server does is not in it and what SQLite does is; the server's, of all its processes, is
shown for a whole command.
"""

from __future__ import annotations

import argparse
import contextlib
import cProfile
import pstats
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from sqlalchemy import event

from benchmarks.cpu import cpu_seconds
from sandloom.db import Database, open_database
from sandloom.ids import ExecKey
from tests.integration.domain.world import DONE, TENANT, World
from tests.services.account import passable_directory, remove_tree
from tests.services.postgres import PostgresServer, migrate
from tests.services.process import stop_everything

ROUND = 40
#: What one command costs; the other calls are reported beside it.
OF_A_COMMAND = ("admit", "claim", "finish", "get")

Call = Callable[[str], object]
Sent = tuple[str, Any, bool]
Seconds = dict[str, float]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.control_plane")
    parser.add_argument("--count", type=int, default=400, help="commands of each side")
    parser.add_argument("--database", nargs="*", default=["sqlite", "postgresql"])
    parser.add_argument("--profile", action="store_true", help="where the time of this thread goes, instead")
    options = parser.parse_args()
    for name in options.database:
        with contextlib.ExitStack() as stack:
            ours, floor, server = stack.enter_context(sqlite() if name == "sqlite" else postgresql())
            world = stack.enter_context(ready_world(ours))
            if options.profile:
                profile(calls(world), options.count)
                continue
            replayed = stack.enter_context(replay(floor, calls(world)))
            show(name, *take_turns(calls(world), replayed, options.count))
            if server is not None:
                show_server(server, calls(world), options.count)
    stop_everything()


def calls(world: World) -> dict[str, Call]:
    route = world.ready()

    def admit(name: str) -> object:
        return world.queued(route, name)

    def claim(name: str) -> object:
        return world.execs.claim(ExecKey(*route.key, name), route.generation, route.worker_id, route.worker_epoch)

    def finish(name: str) -> object:
        key = ExecKey(*route.key, name)
        return world.execs.finish(key, route.worker_id, route.worker_epoch, 2, [("stdout", b"hello\n")], DONE)

    return {
        "admit": admit,
        "claim": claim,
        "finish": finish,
        "get": lambda name: world.execs.get(ExecKey(TENANT, "box", name)),
        "current": lambda name: world.sandboxes.current(route.key, route.generation),
        "touch": lambda name: world.sandboxes.touch(route.fence),
        "open_for": lambda name: world.execs.open_for(route.worker_id, route.worker_epoch),
        "renew": lambda name: world.fleet.renew(route.worker_id, route.worker_epoch, 600, {"execs": 1}),
    }


# --- the databases: one for each side, alike ---


@contextlib.contextmanager
def sqlite() -> Iterator[tuple[str, str, None]]:
    with tempfile.TemporaryDirectory(prefix="sandloom-bench-") as directory:
        path = Path(directory, "ours.db")
        migrate(f"sqlite:///{path}")
        other = shutil.copyfile(path, Path(directory, "floor.db"))
        yield f"sqlite:///{path}", f"sqlite:///{other}", None


@contextlib.contextmanager
def postgresql() -> Iterator[tuple[str, str, int]]:
    """The third is the server's process."""
    directory = passable_directory("sandloom-bench")
    server = PostgresServer(directory / "postgres")
    server.start()
    try:
        yield server.new_database(), server.new_database(), server.pid
    finally:
        server.stop()
        remove_tree(directory)


@contextlib.contextmanager
def ready_world(url: str) -> Iterator[World]:
    """One worker and one READY sandbox, in which a command has run."""
    db = open_database(url)
    try:
        world = World(db)
        world.started()
        yield world
    finally:
        db.dispose()


# --- the floor ---


@contextlib.contextmanager
def replay(url: str, real: dict[str, Call]) -> Iterator[dict[str, Call]]:
    """The same calls as what the driver was sent for them, on another database."""
    with ready_world(url) as world:
        own = calls(world)
        for call in own.values():
            call("warm")
        recorded = {name: sent(world.db, call, "recorded") for name, call in own.items()}
        raw = world.db.engine.raw_connection()
        with contextlib.closing(raw):
            cursor = raw.cursor()
            yield {name: player(cursor, found) for name, found in recorded.items()}


def sent(db: Database, call: Call, name: str) -> Sequence[Sent]:
    found: list[Sent] = []

    def note(conn: object, cursor: object, statement: str, parameters: Any, context: object, many: bool) -> None:
        found.append((statement, parameters, many))

    event.listen(db.engine, "before_cursor_execute", note)
    call(name)
    event.remove(db.engine, "before_cursor_execute", note)
    return found


def player(cursor: Any, found: Sequence[Sent]) -> Call:
    def play(name: str) -> None:
        for statement, parameters, many in found:
            if many and isinstance(parameters, list):
                cursor.executemany(statement, [renamed(row, name) for row in parameters])
            else:
                cursor.execute(statement, renamed(parameters, name))
            if cursor.description:
                cursor.fetchall()

    return play


def renamed(parameters: Any, name: str) -> Any:
    if isinstance(parameters, dict):
        return {key: name if value == "recorded" else value for key, value in parameters.items()}
    return tuple(name if value == "recorded" else value for value in parameters)


# --- measuring ---


def take_turns(ours: dict[str, Call], floor: dict[str, Call], count: int) -> tuple[list[Seconds], list[Seconds]]:
    """Seconds of CPU by call, one entry a round."""
    one_round(ours, "warm")
    one_round(floor, "warm2")
    found: tuple[list[Seconds], list[Seconds]] = ([], [])
    for number in range(max(count // ROUND, 1)):
        found[0].append(one_round(ours, f"n{number}"))
        found[1].append(one_round(floor, f"n{number}"))
    return found


def one_round(side: dict[str, Call], prefix: str) -> Seconds:
    seconds = dict.fromkeys(side, 0.0)
    for number in range(ROUND):
        name = f"{prefix}-{number}"
        for what, call in side.items():
            started = time.process_time()
            call(name)
            seconds[what] += time.process_time() - started
    return {what: value / ROUND for what, value in seconds.items()}


def show(name: str, ours: list[Seconds], floor: list[Seconds]) -> None:
    table = Table("call", "CPU ms", "driver alone", "ratio", title=f"{name}, {len(ours) * ROUND} commands")
    for what, members in [("a command", OF_A_COMMAND), *((call, (call,)) for call in ours[0])]:
        mine, least = (statistics.median(sum(r[m] for m in members) * 1e3 for r in side) for side in (ours, floor))
        table.add_row(what, f"{mine:.3f}", f"{least:.3f}", f"{mine / least:.2f}")
    Console(width=110).print(table)


def show_server(pid: int, side: dict[str, Call], count: int) -> None:
    own = {what: side[what] for what in OF_A_COMMAND}
    before = cpu_seconds([pid])
    for number in range(max(count // ROUND, 1)):
        one_round(own, f"server{number}")
    each_ms = 1e3 * (cpu_seconds([pid]) - before) / (max(count // ROUND, 1) * ROUND)
    Console(width=110).print(f"server: {each_ms:.2f} ms CPU a command")


def profile(side: dict[str, Call], count: int) -> None:
    one_round(side, "warm")
    profiler = cProfile.Profile(time.thread_time)
    with profiler:
        for number in range(count // ROUND):
            one_round({what: side[what] for what in OF_A_COMMAND}, f"n{number}")
    pstats.Stats(profiler).sort_stats("tottime").print_stats(45)


if __name__ == "__main__":
    main()
