"""A fleet starts and is restarted, process by process, while clients use it."""

from __future__ import annotations

import contextlib
import itertools
import random
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import httpx
import pytest

from sandloom.execs.states import ExecStatus
from sandloom.ids import ExecKey
from tests.acceptance.worker_fleet import CLI, TOKEN, WorkerFleet, fleet_environment, until
from tests.services.account import free_port
from tests.services.postgres import PostgresServer
from tests.services.process import Process, base_environment

pytestmark = [pytest.mark.bwrap, pytest.mark.slow, pytest.mark.timeout(600)]

LONG_SECONDS = 240
BOXES = [f"box-{number}" for number in range(6)]
#: What a release that needs one column more does at its start.
NEWER = """
import sys
from sqlalchemy import Column, Integer
from sandloom.cli import main
from sandloom.db.tables import workers
workers.append_column(Column("of_a_newer_release", Integer))
sys.exit(main())
"""


@pytest.fixture
def empty_url(postgres: PostgresServer) -> Iterator[str]:
    url = postgres.new_database(migrated=False)
    yield url
    postgres.drop_database(url)


def test_six_starts_at_once_against_an_empty_database_and_one_that_needs_more(
    empty_url: str, redis_url: str, data_dir: Path
) -> None:
    environ = fleet_environment(empty_url, redis_url, data_dir, SANDBOX_DATABASE_AUTO_DDL="true")
    ports = (free_port(), free_port())
    apis = [["api", "--host", "127.0.0.1", "--port", str(port)] for port in ports]
    commands = [["worker", "--id", "w1"], ["worker", "--id", "w2"], ["beat"], ["beat"], *apis]
    with contextlib.ExitStack() as stack:
        started = [
            stack.enter_context(
                Process(
                    [*CLI, *words], log_path=data_dir / f"{number}.log",
                    env=base_environment(**environ, SANDBOX_LOCAL_ROOT=str(data_dir / f"root-{number}")),
                )
            )
            for number, words in enumerate(commands)
        ]  # fmt: skip
        for process, words in zip(started, commands, strict=True):
            text = {"worker": "worker started", "api": "Booting worker", "beat": "Connected to"}[words[0]]
            process.wait_for_output(text, timeout_seconds=LONG_SECONDS)

        newer = stack.enter_context(
            Process(
                [sys.executable, "-c", NEWER, "worker", "--id", "w3"], log_path=data_dir / "newer.log",
                env=base_environment(**environ | {"SANDBOX_DATABASE_AUTO_DDL": "false"}),
            )
        )  # fmt: skip
        assert newer.wait(timeout_seconds=LONG_SECONDS) == 3
        assert "workers.of_a_newer_release" in newer.output()

        assert all(process.running for process in started)
        for port in ports:
            headers = {"Authorization": f"Bearer {TOKEN}"}
            answer = httpx.get(f"http://127.0.0.1:{port}/healthz", headers=headers, timeout=120, trust_env=False)
            assert answer.json()["workers"] == {"live": 2, "total": 2}
        fleet = WorkerFleet(empty_url, redis_url, data_dir)
        try:
            assert fleet.run(fleet.ready(), "echo served").stdout == b"served\n"
        finally:
            fleet.close()


class Load:
    """A client over REST that takes whichever replica answers. ``accepted``: what was answered with 2xx."""

    def __init__(self, ports: list[int], names: list[str]) -> None:
        self._ports = ports
        self._names = names
        self._stop = threading.Event()
        self._client = httpx.Client(headers={"Authorization": f"Bearer {TOKEN}"}, timeout=30, trust_env=False)
        self.accepted: list[ExecKey] = []
        self.faults: list[BaseException] = []
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        try:
            for number, name in enumerate(itertools.cycle(self._names)):
                if self._stop.wait(0.05):
                    return
                with contextlib.suppress(httpx.TransportError):
                    self._use(name, f"run-{number}")
        except BaseException as error:
            self.faults.append(error)

    def _use(self, name: str, exec_id: str) -> None:
        body: dict[str, object] = {"sandbox_id": name, "workspace_scope_id": "scope"}
        route = self._post("resolve", body)
        if route.status_code != 200:
            return
        argv = ["sh", "-c", 'echo "$1" >> /workspace/ran; sleep 0.2', "-", exec_id]
        body = {"exec_id": exec_id, "generation": route.json()["generation"], "argv": argv, "background": True}
        if self._post(f"{name}/exec", body).is_success:
            self.accepted.append(ExecKey("default", name, exec_id))

    def _post(self, path: str, body: dict[str, object]) -> httpx.Response:
        port = random.choice(self._ports)
        return self._client.post(f"http://127.0.0.1:{port}/api/v1/sandboxes/{path}", json=body)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()
        self._client.close()


def test_a_rolling_restart_under_load_loses_nothing(postgres_url: str, redis_url: str, data_dir: Path) -> None:
    fleet = WorkerFleet(postgres_url, redis_url, data_dir)
    ports = [free_port(), free_port()]
    try:
        workers = {name: fleet.start_worker(name) for name in ("w1", "w2")}
        apis = {port: fleet.start_api(str(port)) for port in ports}
        beat = fleet.start_beat()
        for api in apis.values():
            api.wait_for_output("Booting worker", timeout_seconds=LONG_SECONDS)
        with contextlib.ExitStack() as stack:
            loads = [stack.enter_context(Load(ports, BOXES[number::2])) for number in range(2)]
            serving(loads)
            for name, worker in workers.items():
                assert worker.stop(timeout_seconds=LONG_SECONDS) == 0
                fleet.start_worker(name)
                serving(loads)
            for port, api in apis.items():
                assert api.stop(timeout_seconds=LONG_SECONDS) == 0
                fleet.start_api(str(port)).wait_for_output("Booting worker", timeout_seconds=LONG_SECONDS)
                serving(loads)
            assert beat.stop(timeout_seconds=LONG_SECONDS) == 0
            fleet.start_beat()
            serving(loads)
        assert [fault for load in loads for fault in load.faults] == []

        accepted = [key for load in loads for key in load.accepted]
        ended = {key: fleet.ended(key, LONG_SECONDS).status for key in accepted}
        assert set(ended.values()) == {ExecStatus.SUCCEEDED}, ended
        for name in BOXES:
            route = fleet.ready(name)
            ran = (fleet.run(route, "cat /workspace/ran").stdout or b"").decode().split()
            assert len(ran) == len(set(ran)), name
            assert {key.exec_id for key in accepted if key.sandbox_id == name} <= set(ran)
            assert route.workspace in ("new", "kept")
    finally:
        fleet.close()


def serving(loads: list[Load]) -> None:
    """Every client is heard again."""
    before = [len(load.accepted) for load in loads]
    until(
        lambda: all(len(load.accepted) > had or load.faults for load, had in zip(loads, before, strict=True)),
        LONG_SECONDS,
    )
