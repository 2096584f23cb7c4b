"""The server commands, each as the process it is: a small fleet over PostgreSQL and Redis."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from sandloom import Client
from tests.services.account import free_port
from tests.services.process import ROOT, Process, base_environment

pytestmark = [pytest.mark.bwrap, pytest.mark.slow]
TOKEN = "token-of-the-test-fleet"
SECRET = "secret-key-of-the-test-fleet"
START_SECONDS = 240


@pytest.fixture
def environment(data_dir: Path, postgres_url: str, redis_url: str) -> dict[str, str]:
    return base_environment(
        PYTHONPATH=str(ROOT),
        SANDBOX_ENVIRONMENT="prod",
        # A machine whose metadata service answers may run the suite; on the host's network this would refuse to start.
        SANDBOX_NETWORK_MODE="isolated",
        SANDBOX_HOST="127.0.0.1",
        SANDBOX_PORT=str(free_port()),
        SANDBOX_DATA_DIR=str(data_dir),
        SANDBOX_DATABASE_URL=postgres_url,
        SANDBOX_BROKER_URL=redis_url,
        SANDBOX_BROKER_NAMESPACE=f"test-{data_dir.name}",
        SANDBOX_INTERNAL_TOKEN=TOKEN,
        SANDBOX_SECRET_KEY=SECRET,
    )


@pytest.fixture
def start(environment: dict[str, str], data_dir: Path) -> Iterator[Callable[..., Process]]:
    """Starts ``sandloom …``; every process is ended by TERM, and must then end well."""
    started: list[Process] = []

    def begin(*words: str) -> Process:
        command = [sys.executable, "-m", "sandloom", *words]
        started.append(Process(command, log_path=data_dir / f"{words[0]}.log", env=environment, cwd=data_dir))
        return started[-1]

    yield begin
    codes = {process.argv[3]: process.stop(timeout_seconds=120) for process in reversed(started)}
    assert set(codes.values()) <= {0}, codes


def answers(url: str, process: Process, good: Callable[[httpx.Response], bool]) -> httpx.Response:
    """The first good answer; the process must live for it."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        assert process.running, process.output()
        try:
            response = httpx.get(url, trust_env=False, timeout=5)
            if good(response):
                return response
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    raise AssertionError(f"{url} did not become good:\n{process.output()[-3000:]}")


def test_a_fleet_runs_commands_and_keeps_its_secrets(
    start: Callable[..., Process], environment: dict[str, str], redis_url: str, postgres_url: str
) -> None:
    processes = [start("worker", "--id", "w-1", "--capacity", "3"), start("beat"), start("api")]
    base = f"http://127.0.0.1:{environment['SANDBOX_PORT']}"
    health = answers(f"{base}/healthz", processes[-1], lambda response: response.json()["status"] == "UP").json()
    assert (health["worker"]["id"], health["environment"]) == ("w-1", "prod")
    with Client(base, TOKEN) as client, client.sandbox() as box:
        assert box.run(["sh", "-c", "echo hello; exit 3"]).exit_code == 3
        assert [event.text for event in box.stream("echo streamed") if event.kind == "stdout"] == ["streamed\n"]
    flower_port = free_port()
    flower = start("flower", "--port", str(flower_port))
    answers(f"http://127.0.0.1:{flower_port}/healthcheck", flower, lambda response: response.status_code == 200)
    passwords = [url.split(":")[2].split("@")[0] for url in (redis_url, postgres_url)]
    assert all(passwords)
    for process in (*processes, flower):
        words = Path(f"/proc/{process.pid}/cmdline").read_text()
        said = process.output()
        for secret in (TOKEN, SECRET, *passwords):
            assert secret not in words, process.argv
            assert secret not in said, process.argv


def test_a_schema_that_is_behind_stops_every_server_with_3(
    start: Callable[..., Process], environment: dict[str, str], postgres: object, data_dir: Path
) -> None:
    empty = postgres.execute  # type: ignore[attr-defined]
    empty('CREATE DATABASE "behind"')
    environment["SANDBOX_DATABASE_URL"] = postgres.url("behind")  # type: ignore[attr-defined]
    for name in ("worker", "beat"):
        command = [sys.executable, "-m", "sandloom", name]
        with Process(command, log_path=data_dir / f"{name}-behind.log", env=environment, cwd=data_dir) as process:
            assert process.wait(START_SECONDS) == 3
            assert "SANDBOX_SCHEMA_BEHIND" in process.output()
            assert "Traceback" not in process.output()
