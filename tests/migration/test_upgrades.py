"""Upgrades that meet, that break off, and that happen under the release before."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, event

from sandloom.db import Database, check_schema, migration_sql, open_database, upgrade
from tests.migration.schemas import MIGRATIONS, Shape, run, run_script, shape
from tests.services.mariadb import MariaDBServer
from tests.services.process import Process, base_environment

STARTS = 6
#: All of them hold the finished imports at the same moment and then start as a service does.
TOGETHER = """
import os, sys
from alembic import command
from sandloom.db import check_schema, open_database, upgrade
children = []
read, write = os.pipe()
for _ in range(int(sys.argv[2])):
    child = os.fork()
    if child == 0:
        os.close(write)
        os.read(read, 1)
        db = open_database(sys.argv[1])
        upgrade(db)
        check_schema(db)
        db.dispose()
        os._exit(0)
    children.append(child)
os.close(write)
print("codes", [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children])
"""


def test_starts_that_meet_over_an_empty_database_all_come_up(new_database: Callable[[], Database], tmp_path: Path):
    db = new_database()
    url = db.engine.url.render_as_string(hide_password=False)
    with Process(
        [sys.executable, "-c", TOGETHER, url, str(STARTS)], log_path=tmp_path / "log", env=base_environment()
    ) as process:
        assert process.wait(100) == 0
        assert f"codes {[0] * STARTS}" in process.output(), process.output()
    assert check_schema(db) == ()


def test_an_upgrade_of_mariadb_that_breaks_off_anywhere_is_taken_up_again(mariadb: MariaDBServer):
    urls = [mariadb.new_database(migrated=False) for _ in range(2)]
    db, whole = map(open_database, urls)
    upgrade(whole)
    breaks = 0
    while breaks < 100:
        try:
            _upgrade_until(db, statements=1 + 3 * breaks)
            break
        except InterruptedError:
            breaks += 1
    assert breaks > 3
    assert shape(db) == shape(whole)
    for database, url in ((db, urls[0]), (whole, urls[1])):
        database.dispose()
        mariadb.drop_database(url)


def _upgrade_until(db: Database, statements: int) -> None:
    """Breaks off before the next statement that would change the schema."""
    left = statements

    def count(conn: Connection, cursor: Any, statement: str, *rest: Any) -> None:
        nonlocal left
        if statement.split()[0] in ("CREATE", "ALTER", "INSERT"):
            left -= 1
            if left < 0:
                raise InterruptedError

    event.listen(db.engine, "before_cursor_execute", count)
    try:
        upgrade(db)
    finally:
        event.remove(db.engine, "before_cursor_execute", count)


@pytest.mark.parametrize(
    "new_database", [pytest.param(name, marks=pytest.mark.server) for name in ("postgres", "mariadb")], indirect=True
)
def test_printed_migrations_make_the_same_tables(new_database: Callable[[], Database]):
    migrated, managed = new_database(), new_database()
    upgrade(migrated)
    run_script(managed, migration_sql(managed.dialect, "base"))
    assert shape(managed) == shape(migrated)
    upgrade(managed)  # it knows that nothing is left to do
    assert check_schema(managed) == ()
    assert migration_sql(managed.dialect, "head").count("CREATE") == 0


def test_every_migration_serves_the_release_before_it(new_database: Callable[[], Database]):
    db = new_database()
    revisions = list(ScriptDirectory(str(MIGRATIONS)).walk_revisions())[::-1]
    upgrade(db, revisions[0].revision)
    for revision in revisions[1:]:
        before = shape(db)
        upgrade(db, revision.revision)
        assert hindrances(before, shape(db)) == [], revision.revision


def hindrances(before: Shape, after: Shape) -> list[str]:
    """Why statements that were written for ``before`` might fail on ``after``."""
    found = [f"{table} is gone" for table in before if table not in after]
    for table in before.keys() & after.keys():
        was, now = before[table], after[table]
        columns = {name: (kind, nullable) for name, kind, nullable, _ in now["columns"]}
        for name, kind, nullable, _ in was["columns"]:
            if columns.get(name) != (kind, nullable):
                found.append(f"{table}.{name} is gone or another one")
        known = {column[0] for column in was["columns"]}
        for name, _, nullable, has_default in now["columns"]:
            if name not in known and not (nullable or has_default):
                found.append(f"{table}.{name} wants a value")
        for rule in ("key", "unique", "foreign"):
            if was[rule] != now[rule]:
                found.append(f"{table} has another {rule}")
    return sorted(found)


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("ALTER TABLE workers ADD COLUMN later INTEGER", []),
        ("ALTER TABLE workers ADD COLUMN later INTEGER DEFAULT 3 NOT NULL", []),
        ("CREATE INDEX later ON workers (status)", []),
        ("CREATE TABLE later (id INTEGER)", []),
        ("DROP TABLE operations", ["operations is gone"]),
        ("ALTER TABLE usage_records DROP COLUMN cpu_ms", ["usage_records.cpu_ms is gone or another one"]),
        ("ALTER TABLE workers RENAME COLUMN node TO node2",
         ["workers.node is gone or another one", "workers.node2 wants a value"]),
        ("CREATE UNIQUE INDEX later ON workers (queue)", ["workers has another unique"]),
    ],
)  # fmt: skip
def test_what_would_hinder_the_release_before_is_noticed(sqlite_url: str, statement: str, expected: list[str]):
    db = open_database(sqlite_url)
    before = shape(db)
    run(db, statement)
    assert hindrances(before, shape(db)) == expected
    db.dispose()
