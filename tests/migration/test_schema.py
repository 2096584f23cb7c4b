"""Migrations, tables in code and printed DDL are one schema, and a database that lags is noticed at the start."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, inspect

from sandloom.db import Database, check_schema, compare_schema, ddl, open_database, upgrade
from sandloom.db.tables import metadata
from sandloom.errors import SchemaBehind, Unavailable
from tests.services.mariadb import MariaDBServer
from tests.services.postgres import PostgresServer

MIGRATIONS = Path(__file__).resolve().parents[2] / "migrations"
Shape = dict[str, Any]


@pytest.fixture(params=["sqlite", *(pytest.param(name, marks=pytest.mark.server) for name in ("postgres", "mariadb"))])
def new_database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Database]]:
    """Makes empty databases, without any table."""
    made: list[Database] = []
    server: PostgresServer | MariaDBServer | None = None
    if request.param != "sqlite":
        server = request.getfixturevalue(request.param)

    def make() -> Database:
        url = server.new_database(migrated=False) if server else f"sqlite:///{tmp_path}/{len(made)}.db"
        made.append(open_database(url))
        return made[-1]

    yield make
    for database in made:
        database.dispose()
        if server:
            server.drop_database(database.engine.url.render_as_string(hide_password=False))


def shape(db: Database) -> Shape:
    """Tables with their columns, keys and indexes as the database itself describes them."""

    def look(connection: Connection) -> Shape:
        inspector = inspect(connection)
        return {
            table: {
                "columns": sorted((c["name"], str(c["type"]), c["nullable"]) for c in inspector.get_columns(table)),
                "key": inspector.get_pk_constraint(table)["constrained_columns"],
                "unique": sorted(c["column_names"] for c in inspector.get_unique_constraints(table)),
                "foreign": sorted(c["constrained_columns"] for c in inspector.get_foreign_keys(table)),
                "indexes": sorted((str(i["name"]), i["column_names"]) for i in inspector.get_indexes(table)),
            }
            for table in inspector.get_table_names()
            if table != "alembic_version"
        }

    return db.read(look)


def run(db: Database, *statements: str) -> None:
    for statement in statements:
        db.write(lambda connection, statement=statement: connection.exec_driver_sql(statement))  # type: ignore[misc]


def test_migrations_end_in_the_schema_of_the_code(new_database: Callable[[], Database]):
    db = new_database()
    with pytest.raises(SchemaBehind):
        check_schema(db)
    upgrade(db)
    assert check_schema(db) == ()
    differences = db.read(lambda c: compare_metadata(MigrationContext.configure(c), metadata))
    assert differences == []
    before = shape(db)
    upgrade(db)
    assert shape(db) == before


def test_printed_statements_make_the_same_tables(new_database: Callable[[], Database]):
    migrated, managed = new_database(), new_database()
    upgrade(migrated)
    run(managed, *[part for part in ddl(managed.dialect).split(";\n") if part.strip()])
    assert shape(managed) == shape(migrated)
    assert check_schema(managed) == ()


def test_statements_for_mariadb_keep_ids_apart_byte_by_byte():
    printed = ddl("mariadb")
    assert printed.count("CREATE TABLE") == len(metadata.tables)
    assert "COLLATE utf8mb4_bin" in printed
    assert "LONGBLOB" in printed


def test_what_is_missing_is_named_and_what_is_extra_only_reported(new_database: Callable[[], Database]):
    db = new_database()
    upgrade(db)
    run(db, "ALTER TABLE workers ADD COLUMN later INTEGER", "CREATE TABLE somebody_elses (id INTEGER)")
    assert check_schema(db) == ("workers.later",)
    run(db, "ALTER TABLE usage_records DROP COLUMN cpu_ms", "DROP TABLE operations")
    assert compare_schema(db).missing == ("operations", "usage_records.cpu_ms")
    with pytest.raises(SchemaBehind, match=r"operations, usage_records\.cpu_ms.*sandloom db upgrade") as behind:
        check_schema(db)
    assert behind.value.exit_code == 3


def test_one_line_of_revisions():
    script = ScriptDirectory(str(MIGRATIONS))
    assert len(script.get_heads()) == 1
    assert len(script.get_bases()) == 1


def test_a_failed_migration_leaves_nothing_half_done(postgres: PostgresServer):
    url = postgres.new_database(migrated=False)
    db = open_database(url)
    run(db, "CREATE TABLE sandboxes (id INTEGER)")
    with pytest.raises(Exception, match="sandboxes"):
        upgrade(db)
    assert set(shape(db)) == {"sandboxes"}
    run(db, "DROP TABLE sandboxes")
    upgrade(db)
    assert check_schema(db) == ()
    db.dispose()
    postgres.drop_database(url)


def test_a_database_that_is_not_there_is_unavailable_and_not_behind(tmp_path: Path):
    db = open_database("postgresql+psycopg2://nobody:secret@127.0.0.1:1/none")
    with pytest.raises(Unavailable) as raised:
        check_schema(db)
    assert "secret" not in str(raised.value)
    db.dispose()
