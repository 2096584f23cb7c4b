"""Fixtures that every test may ask for; what they start is real, private, and gone afterwards."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pytest
from hypothesis import HealthCheck, settings

from tests.services.account import passable_directory, remove_tree
from tests.services.bubblewrap import why_bwrap_fails
from tests.services.mariadb import MariaDBServer
from tests.services.need import in_ci, missing
from tests.services.postgres import PostgresServer, migrate
from tests.services.process import stop_everything
from tests.services.rabbitmq import RabbitServer
from tests.services.rclone import S3Server
from tests.services.redis import RedisServer

if TYPE_CHECKING:
    from sandloom.db import Database

SERVER_FIXTURES = {
    "postgres", "mariadb", "redis_server", "redis_url", "private_postgres", "private_mariadb", "private_redis",
    "postgres_url", "s3", "rabbit", "rabbit_url",
}  # fmt: skip
Server = TypeVar("Server", PostgresServer, MariaDBServer, RedisServer, RabbitServer, S3Server)
# What is quick and says most comes first.
ORDER = ("architecture", "unit", "docs", "contract", "properties", "services", "migration", "integration", "isolation")
_numbers = itertools.count(1)
_started: list[PostgresServer | MariaDBServer | RedisServer | RabbitServer | S3Server] = []


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--kills", type=int, default=5, help="how often the test of kills at random moments kills")
    parser.addoption("--races", type=int, default=10, help="how often appends race with the end of their command")
    parser.addoption("--events", type=int, default=800, help="how many events readers follow through restarts")
    parser.addoption("--readers", type=int, default=8, help="how many readers do")
    parser.addoption("--seed", type=int, default=None, help="the seed of that test, to see a failure again")
    parser.addoption("--long", action="store_true", help="also what takes minutes")
    parser.addoption("--batch-jobs", type=int, default=40, help="how many jobs the batch over a fleet has")


def pytest_configure(config: pytest.Config) -> None:
    # Nothing is timed; CI tries the same examples every time, at home new ones are looked for.
    settings.register_profile(
        "sandloom", deadline=None, derandomize=in_ci(), suppress_health_check=[HealthCheck.too_slow]
    )
    settings.load_profile("sandloom")
    # A terminated run unwinds its fixtures like an interrupted one.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    # A shell's background job ignores SIGINT, and so would everything that tests start.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if SERVER_FIXTURES & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.server)
    items.sort(key=_place)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("long") and not item.config.getoption("--long"):
        pytest.skip("takes minutes; asked for with --long")
    if item.get_closest_marker("root") and os.geteuid() != 0:
        pytest.skip("needs root")
    if item.get_closest_marker("bwrap") and (reason := why_bwrap_fails()):
        missing(f"usable bubblewrap ({reason})")
    # A test of failures may have left a shared server down.
    for server in _started:
        server.start()


def pytest_unconfigure() -> None:
    stop_everything()


@pytest.fixture(scope="session")
def services_directory() -> Iterator[Path]:
    path = passable_directory("sandloom-services")
    yield path
    remove_tree(path)


@pytest.fixture(scope="session")
def postgres(services_directory: Path) -> Iterator[PostgresServer]:
    """The run's PostgreSQL server; ``postgres.new_database()`` gives the URL of a database with the schema."""
    server = PostgresServer(services_directory / "postgres")
    yield from _running(server)


@pytest.fixture(scope="session")
def mariadb(services_directory: Path) -> Iterator[MariaDBServer]:
    """The run's MariaDB server; ``mariadb.new_database()`` gives the URL of a database with the schema."""
    server = MariaDBServer(services_directory / "mariadb")
    yield from _running(server)


@pytest.fixture(scope="session")
def redis_server(services_directory: Path) -> Iterator[RedisServer]:
    """The run's Redis server; a test that breaks it wants ``private_redis``."""
    server = RedisServer(services_directory / "redis")
    yield from _running(server)


@pytest.fixture(scope="session")
def rabbit(services_directory: Path) -> Iterator[RabbitServer]:
    """The run's RabbitMQ server, also for tests that stop or empty it: a start costs seconds, and it comes back with
    its virtual hosts."""
    server = RabbitServer(services_directory / "rabbitmq")
    yield from _running(server)


@pytest.fixture
def rabbit_url(rabbit: RabbitServer) -> str:
    """An empty virtual host of RabbitMQ."""
    return rabbit.new_url()


@pytest.fixture(scope="session")
def s3(services_directory: Path) -> Iterator[S3Server]:
    """The run's S3 server; a test takes a bucket name of its own."""
    server = S3Server(services_directory / "s3")
    yield from _running(server)


@pytest.fixture
def private_postgres(services_directory: Path) -> Iterator[PostgresServer]:
    """A PostgreSQL server of this test alone, to be stopped and killed."""
    directory = services_directory / f"postgres-{next(_numbers)}"
    server = PostgresServer(directory)
    server.start()
    yield server
    server.stop()
    remove_tree(directory)


@pytest.fixture
def private_mariadb(services_directory: Path) -> Iterator[MariaDBServer]:
    """A MariaDB server of this test alone, to be stopped and killed."""
    directory = services_directory / f"mariadb-{next(_numbers)}"
    server = MariaDBServer(directory)
    server.start()
    yield server
    server.stop()
    remove_tree(directory)


@pytest.fixture
def private_redis(services_directory: Path) -> Iterator[RedisServer]:
    """A Redis server of this test alone, to be stopped, killed and emptied."""
    directory = services_directory / f"redis-{next(_numbers)}"
    server = RedisServer(directory)
    server.start()
    yield server
    server.stop()
    remove_tree(directory)


@pytest.fixture
def redis_url(redis_server: RedisServer) -> str:
    """An empty Redis database. Pub/sub crosses databases, so names of channels still need a namespace."""
    return redis_server.new_url()


@pytest.fixture
def postgres_url(postgres: PostgresServer) -> Iterator[str]:
    """A PostgreSQL database with the current schema."""
    url = postgres.new_database()
    yield url
    postgres.drop_database(url)


@pytest.fixture(scope="session")
def _sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sqlite") / "template.db"
    migrate(f"sqlite:///{path}")
    return path


@pytest.fixture
def sqlite_url(_sqlite_template: Path, tmp_path: Path) -> str:
    """A SQLite file with the current schema."""
    path = tmp_path / "sandloom.db"
    shutil.copyfile(_sqlite_template, path)
    return f"sqlite:///{path}"


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.server)])
def database_url(request: pytest.FixtureRequest) -> str:
    """A database with the current schema, once on SQLite and once on PostgreSQL."""
    name = "sqlite_url" if request.param == "sqlite" else "postgres_url"
    url: str = request.getfixturevalue(name)
    return url


@pytest.fixture
def db(database_url: str) -> Iterator[Database]:
    """An open database of each kind."""
    from sandloom.db import open_database

    database = open_database(database_url)
    yield database
    database.dispose()


@pytest.fixture
def new_data_dir() -> Iterator[Callable[[], Path]]:
    """Makes directories that a sandbox's uid may traverse; all are removed afterwards."""
    made: list[Path] = []

    def make() -> Path:
        made.append(passable_directory("sandloom-test"))
        return made[-1]

    yield make
    for path in made:
        remove_tree(path)


@pytest.fixture
def data_dir(new_data_dir: Callable[[], Path]) -> Path:
    """One directory that a sandbox's uid may traverse."""
    return new_data_dir()


def _place(item: pytest.Item) -> int:
    kind = item.nodeid.split("/")[1]
    return ORDER.index(kind) if kind in ORDER else len(ORDER)


def _running(server: Server) -> Iterator[Server]:
    server.start()
    _started.append(server)
    yield server
    _started.remove(server)
    server.stop()
