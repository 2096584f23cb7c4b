"""Databases without any table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sandloom.db import Database, open_database
from tests.services.mariadb import MariaDBServer
from tests.services.postgres import PostgresServer


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
