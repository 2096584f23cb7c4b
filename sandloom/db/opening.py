"""The database of a deployment, as every process of it opens it."""

from __future__ import annotations

from sandloom.db.engine import Database, open_database
from sandloom.db.migrations import upgrade
from sandloom.db.schema import check_schema
from sandloom.settings import Settings
from sandloom.telemetry import get_logger

log = get_logger("sandloom.db")


def open_checked_database(settings: Settings) -> Database:
    """The database, brought up to date where DATABASE_AUTO_DDL allows it. Raises SchemaBehind, SettingsInvalid."""
    database = open_database(settings.database_url, pool_size=settings.database_pool_size)
    if settings.database_auto_ddl:
        upgrade(database)
    if extra := check_schema(database):
        log.warning("the database has more than this release knows", columns=list(extra))
    return database
