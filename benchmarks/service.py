"""A service to measure: the embedded one, or a fleet of one API and one worker over PostgreSQL and Redis."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from sqlalchemy import make_url

from sandloom.settings import read_token
from tests.services.account import free_port, new_password, passable_directory, remove_tree
from tests.services.postgres import PostgresServer
from tests.services.process import ROOT, Process, base_environment
from tests.services.redis import RedisServer

_CLI = (sys.executable, "-c", "import sys; from sandloom.cli import main; sys.exit(main())")
_START_SECONDS = 60
SLOTS = 64
_SETTINGS = {
    "SANDBOX_ISOLATION_LEVEL": "strict",
    "SANDBOX_NETWORK_MODE": "isolated",
    "SANDBOX_WORKER_CAPACITY": "1100",
    "SANDBOX_WORKER_EXEC_SLOTS": str(SLOTS),
    "SANDBOX_LOG_FORMAT": "json",
}


@dataclass(frozen=True, slots=True)
class Service:
    """``parts``: name of each part → its process, for the budget."""

    name: str
    url: str
    token: str
    parts: dict[str, int] = field(default_factory=dict)


@contextlib.contextmanager
def embedded() -> Iterator[Service]:
    with _directory() as directory:
        port, data = free_port(), directory / "data"
        options = ["--host", "127.0.0.1", "--port", str(port), "--data-dir", str(data)]
        process = _start(directory, "up", [*options], _SETTINGS)
        try:
            url = _healthy(port, process)
            token = read_token(data)
            assert token is not None
            yield Service("embedded", url, token, {"service": process.pid})
        finally:
            process.stop()


@contextlib.contextmanager
def fleet(
    more: Mapping[str, str] | None = None, worker_database: Callable[[int], int] | None = None
) -> Iterator[Service]:
    """``more`` settings. ``worker_database``: the port at which the worker reaches PostgreSQL, given its own."""
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(_directory())
        postgres, redis = PostgresServer(directory / "postgres"), RedisServer(directory / "redis")
        stack.callback(postgres.stop)
        postgres.start()
        stack.callback(redis.stop)
        redis.start()
        postgres.execute('CREATE DATABASE "bench"')
        port, token = free_port(), new_password()
        settings = (
            _SETTINGS
            | dict(more or {})
            | {
                "SANDBOX_HOST": "127.0.0.1",
                "SANDBOX_PORT": str(port),
                "SANDBOX_DATA_DIR": str(directory),
                "SANDBOX_INTERNAL_TOKEN": token,
                "SANDBOX_SECRET_KEY": new_password(),
                "SANDBOX_DATABASE_URL": postgres.url("bench"),
                "SANDBOX_BROKER_URL": redis.url(0),
                "SANDBOX_RESULT_BACKEND": redis.url(1),
                "SANDBOX_BUS_URL": redis.url(0),
            }
        )
        upgrade = _start(directory, "db", ["upgrade"], settings)
        if upgrade.wait() != 0:
            raise SystemExit(upgrade.output())
        parts = {"PostgreSQL": postgres.pid, "Redis": redis.pid}
        of_worker = {"SANDBOX_LOCAL_ROOT": str(directory / "root")}
        if worker_database is not None:
            url = make_url(settings["SANDBOX_DATABASE_URL"]).set(host="127.0.0.1", port=worker_database(postgres.port))
            of_worker["SANDBOX_DATABASE_URL"] = url.render_as_string(hide_password=False)
        for name, arguments, own in (("worker", ["--id", "bench"], of_worker), ("api", [], {})):
            process = _start(directory, name, arguments, settings | own)
            stack.callback(process.stop)
            parts[name] = process.pid
        yield Service("fleet", _healthy(port, process), token, parts)


@contextlib.contextmanager
def _directory() -> Iterator[Path]:
    directory = passable_directory("sandloom-bench")
    try:
        yield directory
    finally:
        remove_tree(directory)


def _start(directory: Path, name: str, arguments: list[str], settings: Mapping[str, str]) -> Process:
    environment = base_environment(PYTHONPATH=str(ROOT), **settings)
    return Process([*_CLI, name, *arguments], log_path=directory / f"{name}.log", env=environment, cwd=directory)


def _healthy(port: int, process: Process) -> str:
    url = f"http://127.0.0.1:{port}"
    deadline = time.monotonic() + _START_SECONDS
    with httpx.Client(base_url=url, trust_env=False, timeout=3) as client:
        while time.monotonic() < deadline and process.running:
            with contextlib.suppress(httpx.HTTPError, ValueError):
                if client.get("/healthz").json().get("status") == "UP":
                    return url
            time.sleep(0.1)
    raise SystemExit(f"the service did not come up:\n{process.output()[-4000:]}")
