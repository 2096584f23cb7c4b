"""Runs migrations on the connection handed in, or on SANDBOX_DATABASE_URL for the alembic command."""

from __future__ import annotations

import os

from alembic import context
from sqlalchemy import Connection, create_engine

from sandloom.db.tables import metadata


def run(connection: Connection) -> None:
    context.configure(
        connection=connection, target_metadata=metadata, render_as_batch=connection.dialect.name == "sqlite"
    )
    with context.begin_transaction():
        context.run_migrations()
    connection.commit()


handed_in = context.config.attributes.get("connection")
if handed_in is not None:
    run(handed_in)
else:
    with create_engine(os.environ["SANDBOX_DATABASE_URL"], hide_parameters=True).connect() as own:
        run(own)
