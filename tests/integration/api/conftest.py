"""Running APIs, each with a worker that the test plays."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.api.servers import Api, embedded, gunicorn

KINDS = [
    "embedded-sqlite",
    pytest.param("gunicorn-postgresql", marks=pytest.mark.server),
    pytest.param("gunicorn-sqlite", marks=pytest.mark.server),
    pytest.param("embedded-postgresql", marks=pytest.mark.server),
]


def _serve(kind: str, request: pytest.FixtureRequest, directory: Path, **more: str) -> Iterator[Api]:
    server, database = kind.split("-")
    url: str = request.getfixturevalue("sqlite_url" if database == "sqlite" else "postgres_url")
    if server == "embedded":
        with embedded(url, directory, **more) as api:
            yield api
    else:
        with gunicorn(url, request.getfixturevalue("redis_url"), directory, **more) as api:
            yield api


@pytest.fixture(params=KINDS)
def api(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Api]:
    """Both servers over both databases."""
    yield from _serve(request.param, request, tmp_path)


@pytest.fixture(params=["embedded-sqlite", pytest.param("gunicorn-sqlite", marks=pytest.mark.server)])
def small_api(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Api]:
    """Both servers with few places, so that they can all be taken."""
    few = {"SANDBOX_API_THREADS": "2", "SANDBOX_MAX_STREAMS": "4", "SANDBOX_MAX_WAITS": "3"}
    yield from _serve(request.param, request, tmp_path, **few)


@pytest.fixture(params=["embedded-sqlite", pytest.param("gunicorn-sqlite", marks=pytest.mark.server)])
def any_server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Api]:
    """Both servers, for what the database has no part in."""
    yield from _serve(request.param, request, tmp_path)
