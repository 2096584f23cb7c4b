"""The schema's migrations (needs a checkout or the image). One process at a time runs them; the others wait and find
nothing left to do."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, exc

from sandloom.db.engine import Database
from sandloom.db.schema import check_server
from sandloom.errors import SchemaBehind, Unavailable

if TYPE_CHECKING:
    from alembic.config import Config

#: How long a start waits for another one that is upgrading.
_WAIT_SECONDS = 600
_POSTGRESQL_LOCK = 0x73616E646C6F6F6D
_MYSQL_LOCK = "CONCAT('sandloom upgrade ', MD5(DATABASE()))"


def upgrade(db: Database, revision: str = "head") -> None:
    """Bring the schema to this release. Raises SchemaBehind without migrations, DatabaseUnsuitable, Unavailable.

    PostgreSQL and SQLite: a migration happens whole, or not at all. MariaDB and MySQL commit each of its statements, so
    that one which was interrupted is taken up again where it stopped.
    """
    from alembic import command

    config = _config()
    check_server(db)
    with db.engine.connect() as connection:
        if db.dialect != "sqlite":
            connection.execution_options(isolation_level="READ COMMITTED")
        with _alone(connection, db):
            config.attributes["connection"] = connection
            command.upgrade(config, revision)


def migration_sql(dialect: str, since: str) -> str:
    """The statements of every migration after the revision ``since`` (``base``: all of them)."""
    from alembic import command

    written = io.StringIO()
    config = _config(written)
    config.attributes["dialect"] = "mysql" if dialect == "mariadb" else dialect  # what both understand
    command.upgrade(config, f"{since}:head", sql=True)
    return written.getvalue()


def _config(output: io.StringIO | None = None) -> Config:
    from alembic.config import Config

    scripts = Path(__file__).resolve().parents[2] / "migrations"
    if not scripts.is_dir():
        raise SchemaBehind(
            "Migrations are not part of the wheel; run 'sandloom db upgrade' from a checkout or the image."
        )
    config = Config() if output is None else Config(output_buffer=output)
    config.set_main_option("script_location", str(scripts))
    return config


@contextmanager
def _alone(connection: Connection, db: Database) -> Iterator[None]:
    try:
        if db.dialect == "sqlite":
            connection.exec_driver_sql("BEGIN IMMEDIATE")  # the lock is the file's, and ends with the transaction
        elif db.dialect == "postgresql":
            _lock_postgresql(connection)
        else:
            _lock_mysql(connection)
    except exc.DBAPIError as error:
        raise Unavailable("Another process is upgrading the schema, or the database does not answer.") from error
    try:
        yield
    finally:
        if db.is_mysql and not connection.invalidated:
            connection.exec_driver_sql(f"DO RELEASE_LOCK({_MYSQL_LOCK})")


def _lock_postgresql(connection: Connection) -> None:
    """Held until the transaction of the migrations ends."""
    before = connection.exec_driver_sql("SHOW lock_timeout").scalar_one()
    connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{_WAIT_SECONDS}s'")
    connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_POSTGRESQL_LOCK})")
    connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{before}'")


def _lock_mysql(connection: Connection) -> None:
    """Held until it is released or the session ends: DDL ends every transaction."""
    got = connection.exec_driver_sql(f"SELECT GET_LOCK({_MYSQL_LOCK}, {_WAIT_SECONDS})").scalar_one()
    if got != 1:
        raise Unavailable("Another process is upgrading the schema for long; start again when it is done.")
