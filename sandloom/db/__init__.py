"""The metadata database: tables, connections, schema."""

from __future__ import annotations

from sandloom.db.clock import now_us
from sandloom.db.engine import Database
from sandloom.db.migrations import migration_sql, upgrade
from sandloom.db.schema import check_schema, compare_schema, ddl

__all__ = [
    "Database",
    "check_schema",
    "compare_schema",
    "ddl",
    "migration_sql",
    "now_us",
    "open_database",
    "upgrade",
]


def open_database(url: str, *, pool_size: int = 16) -> Database:
    """Connects lazily; an unreachable server shows at the first call as ``Unavailable``."""
    return Database(url, pool_size=pool_size)
