"""The metadata database: tables, connections, schema."""

from __future__ import annotations

from sandloom.db.clock import now_us
from sandloom.db.engine import Database, open_database, sqlite_file
from sandloom.db.migrations import migration_sql, upgrade
from sandloom.db.opening import open_checked_database
from sandloom.db.schema import check_schema, compare_schema, ddl

__all__ = [
    "Database",
    "check_schema",
    "compare_schema",
    "ddl",
    "migration_sql",
    "now_us",
    "open_checked_database",
    "open_database",
    "sqlite_file",
    "upgrade",
]
