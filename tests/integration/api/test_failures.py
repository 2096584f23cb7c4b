"""What goes wrong inside is named, logged, and tells nothing."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import structlog

from api.app import create_app
from api.blueprints import events
from api.services import Services, assemble
from sandloom.broker.publisher import KombuPublisher
from sandloom.db import open_database
from sandloom.errors import Unavailable
from sandloom.execs.records import EventPage
from sandloom.settings import Settings
from sandloom.streams import MemoryBus
from sandloom.telemetry import configure
from tests.integration.api.servers import TOKEN, embedded, environment
from tests.services.account import free_port
from tests.services.postgres import PostgresServer

HEADERS = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture
def services(sqlite_url: str, tmp_path: Path) -> Iterator[Services]:
    settings = Settings.load(environment(sqlite_url, tmp_path, free_port())).embedded()
    services = assemble(settings, open_database(sqlite_url), MemoryBus(), KombuPublisher(settings.broker_url))
    yield services
    services.close()


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    """The service's log as in production."""
    handlers, level = logging.root.handlers[:], logging.root.level
    output = io.StringIO()
    configure("error", "json", output)
    yield output
    structlog.reset_defaults()
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)


def test_an_unexpected_exception_is_a_500_without_details(services: Services, log: io.StringIO) -> None:
    app = create_app(services)

    @app.get("/api/v1/broken")
    def broken() -> str:
        raise RuntimeError("the reason is in the log only")

    answer = app.test_client().get("/api/v1/broken", headers=HEADERS | {"X-Request-ID": "find-me"})
    assert answer.status_code == 500
    assert answer.get_json()["code"] == "SANDBOX_INTERNAL_ERROR"
    assert b"reason" not in answer.data
    assert answer.headers["X-Request-ID"] == "find-me"
    line = json.loads(log.getvalue().splitlines()[-1])
    assert line["request_id"] == "find-me"
    assert "the reason is in the log only" in line["exception"]
    assert TOKEN not in str(line)


def test_a_database_that_is_down_is_503_with_retry_after(private_postgres: PostgresServer, tmp_path: Path) -> None:
    with embedded(private_postgres.new_database(), tmp_path) as api, api.client() as http:
        assert http.get("/api/v1/sandboxes").status_code == 200
        private_postgres.stop()
        for answer in (
            http.get("/api/v1/sandboxes"),
            http.post("/api/v1/sandboxes/resolve", json={"sandbox_id": "box", "workspace_scope_id": "s"}),
            http.get("/api/v1/sandboxes/box/exec/run-1", params={"wait": 1}),
            http.get("/api/v1/sandboxes/diagnostics/runtime"),
        ):
            assert (answer.status_code, answer.json()["code"]) == (503, "SERVICE_UNAVAILABLE")
            assert int(answer.headers["Retry-After"]) >= 1
        health = http.get("/healthz")
        assert (health.status_code, health.json()["status"]) == (200, "DEGRADED")
        assert health.json()["dependencies"]["database"] == "DOWN"
        assert http.get("/health").text == "ok"
        private_postgres.start()
        assert http.get("/api/v1/sandboxes").status_code == 200


def test_a_stream_that_cannot_begin_gives_its_place_back(services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    pages = [EventPage(events=(), last_seq=0, terminal=False, first_available_seq=1)]

    def once(*_: object) -> EventPage:
        if not pages:
            raise Unavailable
        return pages.pop()

    monkeypatch.setattr(events, "first_page", once)
    answer = create_app(services).test_client().get("/api/v1/sandboxes/box/exec/run-1/events", headers=HEADERS)
    assert (answer.status_code, pages, services.streams.in_use) == (503, [], 0)


def test_a_stream_that_loses_its_database_is_cut_and_not_ended(
    private_postgres: PostgresServer, tmp_path: Path
) -> None:
    with embedded(private_postgres.new_database(), tmp_path) as api, api.client() as http:
        generation = api.ready_sandbox()
        body = {"exec_id": "run-1", "generation": generation, "argv": ["true"], "background": True}
        assert http.post("/api/v1/sandboxes/box/exec", json=body).status_code == 202
        received: list[bytes] = []
        with http.stream("GET", "/api/v1/sandboxes/box/exec/run-1/events") as stream:
            private_postgres.stop()
            with pytest.raises(httpx.RemoteProtocolError):
                received.extend(stream.iter_raw())
        assert b"event: end" not in b"".join(received)
        private_postgres.start()
        assert http.get("/api/v1/sandboxes/box/exec/run-1").json()["status"] == "QUEUED"
