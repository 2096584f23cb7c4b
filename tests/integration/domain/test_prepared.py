"""Prepared statements do what SQLAlchemy would do with them: the same rows, the same errors, the same connections."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import Connection, bindparam, event, insert, select
from sqlalchemy.dialects import mysql
from sqlalchemy.exc import IntegrityError

from sandloom.db import Database
from sandloom.db.prepared import Query, Write
from sandloom.db.tables import execs, operations, workers
from sandloom.execs import statements as exec_statements
from sandloom.ids import ExecKey
from sandloom.sandboxes import statements as sandbox_statements
from tests.integration.domain.world import TENANT, World, request
from tests.services.postgres import PostgresServer

ADD = Write(insert(operations), ("tenant_id", "op_id", "seen_us"))
OPERATION = {"tenant_id": TENANT, "op_id": "op", "seen_us": 1}
KEY = exec_statements.of_key(ExecKey(TENANT, "box", "run"))
QUERIES: dict[str, tuple[Query, dict[str, Any]]] = {
    "exec": (exec_statements.EXEC, KEY),
    "progress": (exec_statements.PROGRESS, KEY),
    "events": (exec_statements.EVENTS_AFTER, {**KEY, "of_seq": 0, "at_most": 10}),
    "output": (exec_statements.OUTPUT, KEY),
    "open": (exec_statements.OPEN_OF_OWNER, {"of_worker": "w1", "of_epoch": 1, "at_most": 10}),
    "sandbox": (sandbox_statements.ROUTE, KEY),
    "admission": (exec_statements.ADMISSION, {**KEY, "of_scope": None}),
    "admission to a scope": (exec_statements.ADMISSION, {**KEY, "of_scope": "tests"}),
}


@pytest.mark.parametrize("name", QUERIES)
def test_rows_are_those_of_sqlalchemy(world: World, name: str):
    route = world.started()
    world.execs.admit(route.key, 1, request("run", "tests", stdin=b"\x00\xff"))
    claimed = world.execs.claim(ExecKey(*route.key, "run"), 1, "w1", 1)
    assert claimed is not None
    world.execs.append(claimed.key, "w1", 1, claimed.last_seq, [("stdout", b"\x00\xff")])
    query, values = QUERIES[name]
    directly = world.db.read(lambda connection: query.all(connection, values))
    heard: list[str] = []

    def note(conn: Connection, cursor: Any, statement: str, *rest: Any) -> None:
        heard.append(statement)

    event.listen(world.db.engine, "before_cursor_execute", note)
    try:
        by_sqlalchemy = world.db.read(lambda connection: query.all(connection, values))
    finally:
        event.remove(world.db.engine, "before_cursor_execute", note)
    assert heard
    assert directly
    for mine, theirs in zip(directly, by_sqlalchemy, strict=True):
        same = {**theirs._mapping, "now": None}
        assert {**mine._asdict(), "now": None} == same
        assert [type(value) for value in mine] == [type(value) for value in theirs]


def test_a_write_says_how_many_rows_it_reached(world: World):
    route = world.started()
    fence = sandbox_statements.of_fence(route.fence)
    assert world.db.write(lambda connection: sandbox_statements.TOUCH.run(connection, fence)) == 1
    assert world.db.write(lambda c: sandbox_statements.TOUCH.run(c, {**fence, "of_generation": 2})) == 0


def test_a_missing_value_is_a_mistake(db: Database):
    with pytest.raises(KeyError):
        db.write(lambda connection: ADD.run(connection, {"tenant_id": TENANT, "op_id": "op"}))


def test_errors_are_those_of_sqlalchemy_and_the_transaction_is_undone(world: World):
    def twice(connection: Connection) -> None:
        ADD.run(connection, OPERATION)
        ADD.run(connection, OPERATION)

    with pytest.raises(IntegrityError) as caught:
        world.db.write(twice)
    assert "op_id" not in str(caught.value.params)
    assert world.rows(operations) == []


def test_a_text_that_depends_on_values_is_refused(db: Database):
    statuses = Query(select(execs.c.exec_id).where(execs.c.status.in_(bindparam("statuses", expanding=True))))
    with pytest.raises(AssertionError):
        db.read(lambda connection: statuses.all(connection, {"statuses": ["QUEUED"]}))


@pytest.mark.server
def test_connections_that_broke_meanwhile_are_replaced(postgres: PostgresServer, hasty_postgres: Database):
    """All that the pool holds at once, as after a restart of the server."""
    worker = Query(select(workers.c.worker_id).where(workers.c.worker_id == bindparam("of_worker")))
    values = {"of_worker": "w1"}

    def nested(connection: Connection, depth: int) -> None:
        worker.all(connection, values)
        if depth:
            hasty_postgres.read(lambda inner: nested(inner, depth - 1))

    def break_all() -> None:
        hasty_postgres.read(lambda connection: nested(connection, 3))
        postgres.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            f"WHERE datname = '{hasty_postgres.engine.url.database}'"
        )

    World(hasty_postgres).empty()
    break_all()
    assert hasty_postgres.read(lambda connection: worker.all(connection, values)) == []
    break_all()
    assert hasty_postgres.write(lambda connection: ADD.run(connection, OPERATION)) == 1


def test_the_text_for_mariadb_can_be_made():
    dialect = mysql.dialect()
    dialect.dbapi = __import__("sqlite3")
    for module in (exec_statements, sandbox_statements):
        for statement in vars(module).values():
            if isinstance(statement, (Query, Write)):
                statement._compile(dialect)
