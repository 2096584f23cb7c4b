"""Running APIs, each with a worker that the test plays. A server is shared; each test is a tenant of its own."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from sandloom.ids import new_id
from tests.integration.api.servers import Api, embedded, gunicorn
from tests.services.postgres import PostgresServer, migrate
from tests.services.rclone import S3Server
from tests.services.redis import RedisServer

_tenants = itertools.count(1)
SQLITE = ["embedded-sqlite", pytest.param("gunicorn-sqlite", marks=pytest.mark.server)]
PAIR = ["embedded-sqlite", pytest.param("gunicorn-postgresql", marks=pytest.mark.server)]
EACH = [
    *SQLITE,
    pytest.param("embedded-postgresql", marks=pytest.mark.server),
    pytest.param("gunicorn-postgresql", marks=pytest.mark.server),
]


def _served(kind: str, request: pytest.FixtureRequest, directory: Path, **more: str) -> AbstractContextManager[Api]:
    server, database = kind.split("-")
    if database == "sqlite":
        url = f"sqlite:///{directory / 'sandloom.db'}"
        migrate(url)
    else:
        postgres: PostgresServer = request.getfixturevalue("postgres")
        url = postgres.new_database()
    if server == "embedded":
        return embedded(url, directory, **more)
    redis: RedisServer = request.getfixturevalue("redis_server")
    return gunicorn(url, redis.new_url(), directory, **more)


@pytest.fixture(scope="session", params=EACH)
def _each(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with _served(request.param, request, tmp_path_factory.mktemp(request.param)) as api:
        yield api


@pytest.fixture(scope="session", params=SQLITE)
def _sqlite(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with _served(request.param, request, tmp_path_factory.mktemp(request.param)) as api:
        yield api


@pytest.fixture
def api(_each: Api) -> Api:
    """Both servers over both databases."""
    return _each.for_tenant(f"tenant-{next(_tenants)}")


@pytest.fixture(scope="session", params=PAIR)
def _pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    # Asked for by value: with it as an argument the tests would count as those that need a server.
    s3: S3Server = request.getfixturevalue("s3")
    store = s3.environment(new_id())
    with _served(request.param, request, tmp_path_factory.mktemp(request.param), **store) as api:
        yield api


@pytest.fixture
def pair(_pair: Api) -> Api:
    """Both servers and both databases, in two combinations: for what takes long. With an object store, which answers
    what each worker would be asked otherwise."""
    return _pair.for_tenant(f"tenant-{next(_tenants)}")


@pytest.fixture
def any_server(_sqlite: Api) -> Api:
    """Both servers, for what the database has no part in."""
    return _sqlite.for_tenant(f"tenant-{next(_tenants)}")


@pytest.fixture(params=SQLITE)
def small_api(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Api]:
    """Both servers with few places, so that they can all be taken; of this test alone."""
    few = {"SANDBOX_API_THREADS": "2", "SANDBOX_MAX_STREAMS": "4", "SANDBOX_MAX_WAITS": "3"}
    with _served(request.param, request, tmp_path, **few) as api:
        yield api
