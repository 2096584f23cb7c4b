"""Runs migrations on the connection handed in, or on SANDBOX_DATABASE_URL for the alembic command, or prints them."""

from __future__ import annotations

import os
from typing import Any

from alembic import context
from alembic.ddl.mysql import MySQLImpl
from sqlalchemy import Connection, create_engine, exc

from sandloom.db.tables import metadata

#: Table, column, index and key that are there already; column or key to drop that is not.
_DONE_BEFORE = frozenset({1050, 1060, 1061, 1826, 1091})


class _TakenUpAgain(MySQLImpl):
    """Each statement commits by itself: what an interrupted upgrade did is done. ``check_schema`` sees the whole."""

    def _exec(self, *arguments: Any, **options: Any) -> Any:
        try:
            return super()._exec(*arguments, **options)
        except exc.DBAPIError as error:
            if error.orig is None or error.orig.args[0] not in _DONE_BEFORE:
                raise
            return None


class _MySQL(_TakenUpAgain):
    __dialect__ = "mysql"


class _MariaDB(_TakenUpAgain):
    __dialect__ = "mariadb"


def run(connection: Connection) -> None:
    context.configure(
        connection=connection, target_metadata=metadata, render_as_batch=connection.dialect.name == "sqlite"
    )
    with context.begin_transaction():
        context.run_migrations()
    connection.commit()


def print_statements(dialect: str) -> None:
    context.configure(dialect_name=dialect, target_metadata=metadata, literal_binds=True)
    with context.begin_transaction():
        context.run_migrations()


handed_in = context.config.attributes.get("connection")
if context.is_offline_mode():
    print_statements(context.config.attributes["dialect"])
elif handed_in is not None:
    run(handed_in)
else:
    with create_engine(os.environ["SANDBOX_DATABASE_URL"], hide_parameters=True).connect() as own:
        run(own)
