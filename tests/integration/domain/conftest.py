"""The ``db`` of these tests forgets faster than a real one: what is durable is not their subject, and fsync is slow.

One database of each kind serves all of them and is emptied before each: statements are compiled once per engine.
The servers do not wait for their logs, and SQLite is a file in memory.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandloom.db import Database, open_database
from tests.integration.domain.world import World
from tests.services.mariadb import MariaDBServer
from tests.services.postgres import PostgresServer

_MEMORY = Path("/dev/shm")
SERVERS = [pytest.param(name, marks=pytest.mark.server) for name in ("postgres", "mariadb")]
KINDS = ["sqlite", *SERVERS]


@pytest.fixture(scope="session")
def memory_directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory whose files are never written to a disk, where the machine has such a thing."""
    if not os.access(_MEMORY, os.W_OK):
        yield tmp_path_factory.mktemp("databases")
        return
    with tempfile.TemporaryDirectory(prefix="sandloom-test-", dir=_MEMORY) as name:
        yield Path(name)


@pytest.fixture(scope="session")
def hasty_sqlite(_sqlite_template: Path, memory_directory: Path) -> Iterator[Database]:
    path = memory_directory / "domain.db"
    shutil.copyfile(_sqlite_template, path)
    database = open_database(f"sqlite:///{path}")
    yield database
    database.dispose()


@pytest.fixture(scope="session")
def hasty_postgres(postgres: PostgresServer) -> Iterator[Database]:
    url = postgres.new_database()
    postgres.execute(f'ALTER DATABASE "{url.rsplit("/", 1)[1]}" SET synchronous_commit = off')
    database = open_database(url)
    yield database
    database.dispose()
    postgres.drop_database(url)


@pytest.fixture(scope="session")
def hasty_mariadb(mariadb: MariaDBServer) -> Iterator[Database]:
    url = mariadb.new_database()
    database = open_database(url)
    yield database
    database.dispose()
    mariadb.drop_database(url)


@pytest.fixture(params=KINDS)
def db(request: pytest.FixtureRequest) -> Database:
    """Each kind of database, empty and open."""
    database: Database = request.getfixturevalue(f"hasty_{request.param}")
    World(database).empty()
    return database


@pytest.fixture(scope="session")
def sqlite_rival(hasty_sqlite: Database) -> Iterator[Database]:
    database = open_database(hasty_sqlite.engine.url.render_as_string(hide_password=False))
    yield database
    database.dispose()


@pytest.fixture
def rival(request: pytest.FixtureRequest, db: Database) -> Database:
    """Another connection to the database of ``db``, as a second process has it."""
    other: Database = request.getfixturevalue("sqlite_rival") if db.dialect == "sqlite" else db
    return other


@pytest.fixture
def world(db: Database) -> World:
    """An empty fleet over each kind of database."""
    return World(db)
