"""The schema in the database against the one in the code."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, inspect
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.engine import Dialect
from sqlalchemy.schema import CreateIndex, CreateTable

from sandloom.db import mysql as mysql_server
from sandloom.db.engine import Database
from sandloom.db.tables import metadata
from sandloom.errors import DatabaseUnsuitable, SchemaBehind

_DIALECTS: dict[str, type[Dialect]] = {
    "postgresql": postgresql.dialect,
    "sqlite": sqlite.dialect,
    "mariadb": mysql.dialect,
    "mysql": mysql.dialect,
}


@dataclass(frozen=True, slots=True)
class SchemaDifference:
    """``missing`` stops a start, ``extra`` is only worth a warning (a rollback looks like that)."""

    missing: tuple[str, ...]
    extra: tuple[str, ...]


def compare_schema(db: Database) -> SchemaDifference:
    """Tables and columns, named ``table`` or ``table.column``, that only one side has. Raises Unavailable."""
    return db.read(_compare)


def _compare(connection: Connection) -> SchemaDifference:
    inspector = inspect(connection)
    present = set(inspector.get_table_names())
    missing: list[str] = []
    extra: list[str] = []
    for table in metadata.sorted_tables:
        if table.name not in present:
            missing.append(table.name)
            continue
        there = {column["name"] for column in inspector.get_columns(table.name)}
        expected = {column.name for column in table.columns}
        missing += [f"{table.name}.{name}" for name in sorted(expected - there)]
        extra += [f"{table.name}.{name}" for name in sorted(there - expected)]
    return SchemaDifference(tuple(missing), tuple(extra))


def check_schema(db: Database) -> tuple[str, ...]:
    """What the database has beyond the code. Raises SchemaBehind naming what it lacks, and DatabaseUnsuitable."""
    check_server(db)
    difference = compare_schema(db)
    if difference.missing:
        raise SchemaBehind(f"The database lacks {', '.join(difference.missing)}; run 'sandloom db upgrade'.")
    return difference.extra


def check_server(db: Database) -> None:
    """Raises DatabaseUnsuitable for a server whose settings would break a promise."""
    if db.is_mysql and (problems := db.read(mysql_server.shortcomings)):
        raise DatabaseUnsuitable(f"The database server cannot be used as it is set up: {'; '.join(problems)}.")


def ddl(dialect: str) -> str:
    """The CREATE statements of the current schema for a managed database (``postgresql``, ``mariadb``, ``sqlite``)."""
    chosen = _DIALECTS[dialect]()
    statements: list[str] = []
    for table in metadata.sorted_tables:
        statements.append(str(CreateTable(table).compile(dialect=chosen)).strip() + ";")
        indexes = sorted(table.indexes, key=lambda index: str(index.name))
        statements += [str(CreateIndex(index).compile(dialect=chosen)).strip() + ";" for index in indexes]
    return "\n\n".join(statements) + "\n"
