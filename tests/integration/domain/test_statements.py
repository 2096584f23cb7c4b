"""What PostgreSQL is really sent, and how it finds the rows when there are many."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from sqlalchemy import Connection, event

from sandloom.db import Database, open_database
from sandloom.execs.admission import request_document
from sandloom.execs.records import Exec, ExecRequest
from sandloom.reclaim.prune import STEPS
from sandloom.sandboxes.records import Route
from tests.integration.domain.world import DONE, World, key
from tests.services.postgres import PostgresServer

pytestmark = pytest.mark.server

_STATEMENT = re.compile(r"LOG:  statement: (.*)")
#: What a statement does: its first word, or the name that it was prepared under, without the hash of its text.
_WORD = re.compile(r"(?:EXECUTE )?([A-Za-z_0-9]+?)(?:_[0-9a-f]{12}_\d+)?(?:\W|$)")


class ServerLog:
    """Everything that the server was sent while ``heard`` ran."""

    def __init__(self, postgres: PostgresServer, db: Database) -> None:
        self.db = db
        self._path = postgres.directory / "postgres.log"

    def heard(self, call: Callable[[], Any]) -> list[str]:
        """What each statement was, in order."""
        first, last = (f"SELECT '{uuid.uuid4().hex}'" for _ in range(2))
        self._mark(first)
        call()
        self._mark(last)
        found: list[str] = []
        while last not in found:
            found = _STATEMENT.findall(self._path.read_text())
        between = found[found.index(first) + 1 : found.index(last)]
        return [match[1] for statement in between if (match := _WORD.match(statement))]

    def _mark(self, statement: str) -> None:
        self.db.read(lambda connection: connection.exec_driver_sql(statement))


@pytest.fixture
def log(postgres: PostgresServer) -> Iterator[ServerLog]:
    url = postgres.new_database()
    postgres.execute(f"ALTER DATABASE \"{url.rsplit('/', 1)[1]}\" SET log_statement = 'all'")
    database = open_database(url)
    yield ServerLog(postgres, database)
    database.dispose()
    postgres.drop_database(url)


def test_no_call_sends_more_than_it_needs(log: ServerLog):
    world = World(log.db)
    route = world.started()
    warm = world.running(route, "warm")  # the first time, each statement is prepared
    world.queued(route, "warm")
    assert world.execs.append(warm.key, "w1", 1, 2, [])
    assert world.finish(warm)
    world.execs.open_for("w1", 1)
    world.fleet.renew("w1", 1, 600, {})
    world.sandboxes.touch(route.fence)
    world.resolve()
    record: list[Exec] = []

    def claim() -> None:
        claimed = world.claim(record[0])
        assert claimed is not None
        record[0] = claimed

    assert log.heard(lambda: record.append(world.queued(route))) == ["admit"]
    assert log.heard(lambda: world.queued(route)) == ["admit", "exec"]
    assert log.heard(claim) == ["claim"]
    events = [("stdout", b"x")] * 50
    assert log.heard(lambda: world.execs.append(record[0].key, "w1", 1, 2, events)) == ["append"]
    assert log.heard(lambda: world.execs.finish(record[0].key, "w1", 1, 52, events, DONE)) == ["finish"]
    assert log.heard(lambda: world.execs.get(record[0].key)) == ["exec"]
    assert log.heard(lambda: world.sandboxes.current(route.key, 1)) == ["route"]
    assert log.heard(lambda: world.execs.open_for("w1", 1)) == ["open_of_owner"]
    assert log.heard(lambda: world.fleet.renew("w1", 1, 600, {})) == ["BEGIN", "renew", "COMMIT"]
    assert log.heard(lambda: world.sandboxes.touch(route.fence)) == ["BEGIN", "touch", "route", "COMMIT"]
    assert log.heard(world.resolve) == ["BEGIN", "route_locked", "keep_alive", "COMMIT"]


# --- plans ---

SANDBOXES, EXECS, WORKERS = 5_000, 50_000, 10

REQUEST = json.dumps(request_document(ExecRequest("run", ("true",))))
FILL = (
    f"""INSERT INTO workers SELECT 'w' || n, 1, 'ACTIVE', 'q' || n, '', '', 'coding-default', 'h', 'h', 2, 'local',
    'r' || n, 1, 100000, 1, 1000, 8, 500, 0, 9e15, 1, '{{}}', '{{}}' FROM generate_series(1, {WORKERS}) n""",
    f"""INSERT INTO sandboxes SELECT 'default', 'box-' || n, 'scope', 'coding-default', 'h',
    CASE WHEN mod(n, 50) = 0 THEN 'READY' ELSE 'RELEASED' END, 1, 'w' || (mod(n, {WORKERS}) + 1), 1,
    'r' || (mod(n, {WORKERS}) + 1), 'local', n, CASE WHEN mod(n, 50) = 0 THEN n END, 'new', 0, NULL, 1, 0, n, n, n, n, n
    FROM generate_series(1, {SANDBOXES}) n""",
    f"""INSERT INTO execs SELECT 'default', 'box-' || (mod(n, {SANDBOXES}) + 1), 'run-' || n, 1,
    'w' || (mod(n, {WORKERS}) + 1), 1, CASE WHEN mod(n, 500) = 0 THEN 'QUEUED' ELSE 'SUCCEEDED' END, NULL, NULL,
    CASE WHEN mod(n, 500) = 0 THEN 'w' || (mod(n, {WORKERS}) + 1) END, 'h', '{REQUEST}', '{{}}', NULL, 1, 0, NULL,
    'exit', NULL, NULL, false, NULL, 1, 3, NULL, 0, n, n, n,
    CASE WHEN mod(n, 500) = 0 THEN NULL WHEN n < 40 THEN n ELSE 9e15 END, NULL FROM generate_series(1, {EXECS}) n""",
    f"""INSERT INTO exec_events SELECT 'default', 'box-' || (mod(n, {SANDBOXES}) + 1), 'run-' || n, s, 'status', '', n
    FROM generate_series(1, {EXECS}) n, generate_series(1, 1) s""",
    f"""INSERT INTO sandbox_history SELECT 'default', 'box-' || n, 1, 'w1', 9e15, 'me', n, NULL, NULL, NULL
    FROM generate_series(1, {SANDBOXES}) n""",
    "INSERT INTO operations SELECT 'default', 'op-' || n, 9e15 FROM generate_series(1, 5000) n",
    "ANALYZE",
)


@pytest.fixture(scope="module")
def full(postgres: PostgresServer) -> Iterator[World]:
    """A database as it is after a while: few sandboxes are live and few commands open."""
    url = postgres.new_database()
    postgres.execute(f'ALTER DATABASE "{url.rsplit("/", 1)[1]}" SET synchronous_commit = off')
    database = open_database(url)
    for statement in FILL:
        database.write(partial(Connection.exec_driver_sql, statement=statement))
    yield World(database)
    database.dispose()
    postgres.drop_database(url)


CALLS: dict[str, Callable[[World, Route], Any]] = {
    "resolve": lambda w, r: w.resolve("box-50"),
    "admit": lambda w, r: w.queued(r, "new", "tests"),
    "claim": lambda w, r: w.execs.claim(w.exec("new", "box-50").key, 1, r.worker_id, 1),
    "append": lambda w, r: w.execs.append(w.exec("new", "box-50").key, r.worker_id, 1, 2, [("stdout", b"x")]),
    "events": lambda w, r: w.execs.events(w.exec("new", "box-50").key, 0),
    "finish": lambda w, r: w.execs.finish(w.exec("new", "box-50").key, r.worker_id, 1, 3, [], DONE),
    "cancel": lambda w, r: w.execs.cancel(w.exec("new", "box-50").key),
    "open_for": lambda w, r: w.execs.open_for("w1", 1),
    "list of execs": lambda w, r: w.execs.list(r.key, 50, 0),
    "due_rings": lambda w, r: w.reclaim.due_rings(),
    "queue timeouts": lambda w, r: w.reclaim.end_queue_timeouts(),
    "idle": lambda w, r: w.reclaim.begin_idle_releases(),
    "stalled": lambda w, r: w.reclaim.stalled_releases(),
    "lost": lambda w, r: w.reclaim.end_lost_execs(),
    "recount": lambda w, r: w.reclaim.recount_slots() or [],
    "orphans": lambda w, r: w.reclaim.release_orphans(),
    "restart": lambda w, r: w.register("w3", takeover=True, root_id="r3", declared_hash="h", effective_hash="h"),
}


def test_no_call_reads_whole_tables(full: World):
    route = full.sandboxes.get(key("box-50"))
    bad: list[str] = []
    for name, call in CALLS.items():
        for statement, parameters in sent(full.db, partial(call, full, route)):
            plan = explain(full.db, statement, parameters)
            scans = re.findall(r"Seq Scan on (execs|exec_events|sandboxes|sandbox_history|usage_records)", plan)
            bad += [f"{name}: {scan}\n{statement}\n{plan}" for scan in scans]
    assert not bad, "\n\n".join(bad)


def test_prune_finds_what_is_old_by_an_index(full: World):
    for step in sorted({*STEPS.values(), "uids"}):
        for statement, parameters in sent(full.db, getattr(full.pruning, step)):
            plan = explain(full.db, statement, parameters)
            assert not re.search(r"Seq Scan on (?!workers|tallies)", plan), f"{step}: {statement}\n{plan}"


def sent(db: Database, call: Callable[[], Any]) -> list[tuple[str, Any]]:
    """Every statement of the call that reads or changes rows, with its parameters."""
    found: list[tuple[str, Any]] = []

    def note(conn: Connection, cursor: Any, statement: str, parameters: Any, context: Any, executemany: bool) -> None:
        if statement.split()[0] in ("SELECT", "UPDATE", "DELETE", "WITH"):
            found.append((statement, parameters))

    event.listen(db.engine, "before_cursor_execute", note)
    try:
        call()
    finally:
        event.remove(db.engine, "before_cursor_execute", note)
    assert found
    return found


def explain(db: Database, statement: str, parameters: Any) -> str:
    def look(connection: Connection) -> str:
        connection.exec_driver_sql("SET enable_seqscan = on")  # what the planner would choose by itself
        return "\n".join(row[0] for row in connection.exec_driver_sql(f"EXPLAIN {statement}", parameters))

    return db.read(look)
