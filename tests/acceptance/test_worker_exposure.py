"""A worker whose commands would reach a server without a password does not start; a local one says so and does."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.acceptance.worker_fleet import WorkerFleet

pytestmark = [pytest.mark.bwrap, pytest.mark.slow]


@pytest.fixture
def open_redis() -> Iterator[str]:
    """The URL of something that answers PING to anyone."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    peer, _ = listener.accept()
                    with peer, suppress(OSError):
                        peer.recv(100)
                        peer.sendall(b"+PONG\r\n")

        threading.Thread(target=serve, daemon=True).start()
        yield f"redis://127.0.0.1:{listener.getsockname()[1]}/0"
        listener.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def fleet(postgres_url: str, redis_url: str, data_dir: Path, open_redis: str) -> Iterator[WorkerFleet]:
    open_one = {"SANDBOX_REGISTRY_BACKEND": "redis", "SANDBOX_REDIS_URL": open_redis}
    fleet = WorkerFleet(postgres_url, redis_url, data_dir, **open_one)
    yield fleet
    fleet.close()


def test_a_server_that_asks_nobody_stops_the_start_by_name_with_the_remedy(fleet: WorkerFleet, open_redis: str) -> None:
    worker = fleet.start_worker(wait=False, SANDBOX_ENVIRONMENT="staging")
    assert worker.wait() == 2
    said = worker.output()
    assert "registry (SANDBOX_REDIS_URL) answers commands in a sandbox without authentication at" in said
    assert "requirepass" in said
    assert "SANDBOX_NETWORK_MODE=isolated" in said
    assert "broker" not in said
    assert fleet.services.fleet.get("w1") is None


def test_without_the_network_it_starts(fleet: WorkerFleet) -> None:
    fleet.start_worker(SANDBOX_ENVIRONMENT="staging", SANDBOX_NETWORK_MODE="isolated")
    row = fleet.services.fleet.get("w1")
    assert row is not None
    assert row.node["capabilities"]["control_plane"]["dialled_from"] is None


def test_a_local_one_starts_and_says_so(fleet: WorkerFleet) -> None:
    worker = fleet.start_worker()
    row = fleet.services.fleet.get("w1")
    assert row is not None
    found = row.node["capabilities"]["control_plane"]
    assert found["dialled_from"] == "sandbox"
    assert "registry (SANDBOX_REDIS_URL)" in found["open"]
    assert any(name.startswith("broker (SANDBOX_BROKER_URL), bus") for name in found["guarded"])
    assert "database (SANDBOX_DATABASE_URL)" in found["guarded"]
    assert "byte channel" in found["closed"] + found["guarded"]
    lines = [line for line in worker.output().splitlines() if "asks for no password" in line]
    (said,) = [line for line in lines if "registry (SANDBOX_REDIS_URL) answers commands in a sandbox" in line]
    assert '"network_mode": "host"' in said
    assert "SANDBOX_NETWORK_MODE=isolated" in said
