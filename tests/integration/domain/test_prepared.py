"""Prepared statements do what SQLAlchemy would do with them: the same rows, the same errors, the same connections."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Connection, bindparam, event, insert, select
from sqlalchemy.exc import IntegrityError

from sandloom.db import Database, open_database
from sandloom.db.prepared import Query, Write
from sandloom.db.tables import execs, metadata, operations, workers
from sandloom.execs import statements as exec_statements
from sandloom.ids import ExecKey
from sandloom.sandboxes import statements as sandbox_statements
from tests.integration.domain.world import DONE, TENANT, World, request
from tests.services.postgres import PostgresServer

ADD = Write(insert(operations), ("tenant_id", "op_id", "seen_us"))
OPERATION = {"tenant_id": TENANT, "op_id": "op", "seen_us": 1}
KEY = exec_statements.of_key(ExecKey(TENANT, "box", "run"))
WEIGHED = {"of_parallel": 16, "of_queued_below": 10_000}
QUERIES: dict[str, tuple[Query, dict[str, Any]]] = {
    "exec": (exec_statements.EXEC, KEY),
    "progress": (exec_statements.PROGRESS, KEY),
    "events": (exec_statements.EVENTS_AFTER, {**KEY, "of_seq": 0, "at_most": 10}),
    "events within": (exec_statements.EVENTS_WITHIN, {**KEY, "of_seq": 0, "at_most": 10, "of_bytes_below": 60}),
    "output": (exec_statements.OUTPUT, KEY),
    "open": (exec_statements.OPEN_OF_OWNER, {"of_worker": "w1", "of_epoch": 1, "at_most": 10}),
    "sandbox": (sandbox_statements.ROUTE, KEY),
    "admission": (exec_statements.ADMISSION, {**KEY, **WEIGHED, "of_scope": None}),
    "admission to a scope": (exec_statements.ADMISSION, {**KEY, **WEIGHED, "of_scope": "tests"}),
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


# --- kept by the server ---


def prepared(db: Database) -> set[str]:
    """Names of the statements that the session of the next call keeps, without hash and round."""
    names = db.read(lambda c: c.exec_driver_sql("SELECT name FROM pg_prepared_statements").scalars().all())
    return {name.rsplit("_", 2)[0] for name in names}


@pytest.fixture
def alone(hasty_postgres: Database) -> Iterator[World]:
    """PostgreSQL by one connection."""
    World(hasty_postgres).empty()
    database = open_database(hasty_postgres.engine.url.render_as_string(hide_password=False), pool_size=1)
    yield World(database)
    database.dispose()


@pytest.mark.server
def test_a_statement_is_prepared_once_in_a_session(alone: World):
    route = alone.started()
    alone.finish(alone.running(route, "one"))
    before = prepared(alone.db)
    assert before >= {"admit", "claim", "finish"}
    alone.finish(alone.running(route, "two"))
    assert prepared(alone.db) == before


@pytest.mark.server
def test_a_column_that_changes_its_type_is_noticed(alone: World):
    route = alone.started()
    alone.finish(alone.running(route, "one"))
    alter = "ALTER TABLE execs ALTER COLUMN task_id TYPE VARCHAR({})"
    alone.db.write(lambda connection: connection.exec_driver_sql(alter.format(65)))
    try:
        alone.finish(alone.running(route, "two"))
        assert alone.exec("two").status == "SUCCEEDED"
    finally:
        alone.db.write(lambda connection: connection.exec_driver_sql(alter.format(64)))
    alone.check()


@pytest.mark.server
@pytest.mark.parametrize("lost", ["DEALLOCATE ALL", "PREPARE {} AS SELECT 1"])
def test_sessions_that_others_use_too_are_sent_text(alone: World, lost: str):
    """As behind a pooler that gives a session to another client after each transaction."""
    route = alone.started()
    if "{}" in lost:
        statement = exec_statements.EXEC
        alone.db.read(lambda c: statement.all(c, KEY))
        names = alone.db.read(lambda c: c.exec_driver_sql("SELECT name FROM pg_prepared_statements").scalars().all())
        (name,) = [name for name in names if name.startswith("exec_")]
        alone.db.sessions.close_idle()
        lost = lost.format(name)
    else:
        alone.finish(alone.running(route, "one"))
    alone.db.read(lambda connection: connection.exec_driver_sql(lost))
    alone.finish(alone.running(route, "two", "tests"))
    assert alone.exec("two").status == "SUCCEEDED"
    assert len(alone.execs.events(ExecKey(*route.key, "two"), 0).events) == 3
    assert "progress" not in prepared(alone.db)
    alone.check()


PLANNED = ("admit", "claim", "append", "finish", "exec", "progress", "events_after", "events_within", "output",
           "open_of_owner", "route")  # fmt: skip
#: Indexes that find one row, or the rows that are asked for and no others.
RIGHT = {
    "pk_sandboxes", "pk_workers", "pk_execs", "pk_exec_events", "uq_execs_active_scope", "ix_execs_open",
}  # fmt: skip


@pytest.mark.server
def test_plans_of_tables_that_were_empty_are_right_for_full_ones(alone: World):
    """They are kept; a table that was vacuumed when it was empty looks as if it cost nothing to read."""
    for table in metadata.sorted_tables:
        alone.db.read(lambda c, name=table.name: c.exec_driver_sql(f"VACUUM ANALYZE {name}"))  # type: ignore[misc]
    route = alone.started()
    record = alone.running(route, "run", "tests")
    alone.execs.append(record.key, "w1", 1, 2, [("stdout", b"x")])
    alone.execs.events(record.key, 0)
    alone.execs.events(record.key, 0, max_bytes=1)
    alone.execs.open_for("w1", 1)
    alone.exec("run")
    alone.execs.finish(record.key, "w1", 1, 3, [], DONE)
    alone.sandboxes.current(route.key, 1)
    plans = alone.db.read(plans_of_session)
    assert plans.keys() >= set(PLANNED)
    for name in PLANNED:
        used = set(re.findall(r"using (\w+)", plans[name]))
        assert used <= RIGHT, f"{name}: {plans[name]}"
        assert "Seq Scan" not in plans[name], f"{name}: {plans[name]}"


def plans_of_session(connection: Connection) -> dict[str, str]:
    query = "SELECT name, cardinality(parameter_types) FROM pg_prepared_statements"
    plans = {}
    for name, parameters in connection.exec_driver_sql(query).all():
        arguments = f"({', '.join(['NULL'] * parameters)})" if parameters else ""
        plan = connection.exec_driver_sql(f"EXPLAIN EXECUTE {name}{arguments}")
        plans[name.rsplit("_", 2)[0]] = "\n".join(row[0] for row in plan)
    return plans
