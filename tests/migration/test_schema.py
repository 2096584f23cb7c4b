"""Migrations, tables in code and printed DDL are one schema, and a database that lags is noticed at the start."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from sandloom.db import Database, check_schema, compare_schema, ddl, open_database, upgrade
from sandloom.db.tables import metadata
from sandloom.errors import SchemaBehind, Unavailable
from tests.migration.schemas import MIGRATIONS, run, run_script, shape


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
    run_script(managed, ddl(managed.dialect))
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


@pytest.mark.parametrize("new_database", ["sqlite", pytest.param("postgres", marks=pytest.mark.server)], indirect=True)
def test_a_failed_migration_leaves_nothing_half_done(new_database: Callable[[], Database]):
    db = new_database()
    run(db, "CREATE TABLE sandboxes (id INTEGER)")
    with pytest.raises(Exception, match="sandboxes"):
        upgrade(db)
    assert set(shape(db)) == {"sandboxes"}
    run(db, "DROP TABLE sandboxes")
    upgrade(db)
    assert check_schema(db) == ()


def test_a_database_that_is_not_there_is_unavailable_and_not_behind(tmp_path: Path):
    db = open_database("postgresql+psycopg2://nobody:secret@127.0.0.1:1/none")
    with pytest.raises(Unavailable) as raised:
        check_schema(db)
    assert "secret" not in str(raised.value)
    db.dispose()
