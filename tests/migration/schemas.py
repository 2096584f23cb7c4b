"""What a database says about its tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sqlalchemy import Connection, inspect

from sandloom.db import Database

MIGRATIONS = Path(__file__).resolve().parents[2] / "migrations"
Shape = dict[str, Any]


def shape(db: Database) -> Shape:
    """Tables with their columns (name, type, nullable, has a default), keys and indexes as the database has them."""
    return db.read(_shape)


def _shape(connection: Connection) -> Shape:
    inspector = inspect(connection)
    shapes: Shape = {}
    for table in set(inspector.get_table_names()) - {"alembic_version"}:
        indexes = inspector.get_indexes(table)
        unique: list[Any] = [*inspector.get_unique_constraints(table), *(index for index in indexes if index["unique"])]
        shapes[table] = {
            "columns": sorted(
                (c["name"], str(c["type"]), c["nullable"], c["default"] is not None)
                for c in inspector.get_columns(table)
            ),
            "key": inspector.get_pk_constraint(table)["constrained_columns"],
            "unique": sorted({tuple(str(name) for name in rule["column_names"]) for rule in unique}),
            "foreign": sorted(rule["constrained_columns"] for rule in inspector.get_foreign_keys(table)),
            "indexes": sorted((str(index["name"]), index["column_names"]) for index in indexes),
        }
    return shapes


def run(db: Database, *statements: str) -> None:
    for statement in statements:
        db.write(lambda connection, text=statement: connection.exec_driver_sql(text).close())  # type: ignore[misc]


def run_script(db: Database, script: str) -> None:
    """Statements as they are printed, without the comments and the transaction around them."""
    parts = ["\n".join(line for line in part.splitlines() if not line.startswith("--")) for part in script.split(";\n")]
    run(db, *[part for part in parts if part.strip() and part.strip() not in ("BEGIN", "COMMIT")])
