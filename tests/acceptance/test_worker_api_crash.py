"""An API process that dies between its commit and its doorbell."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from sandloom.execs.states import ExecStatus
from sandloom.ids import ExecKey
from tests.acceptance.worker_fleet import WorkerFleet, until
from tests.services.account import free_port
from tests.services.redis import RedisServer

pytestmark = [pytest.mark.bwrap, pytest.mark.root]


@pytest.fixture
def fleet(postgres_url: str, private_redis: RedisServer, data_dir: Path) -> Iterator[WorkerFleet]:
    fleet = WorkerFleet(postgres_url, private_redis.new_url(), data_dir)
    yield fleet
    fleet.close()


def test_a_command_whose_api_died_before_the_doorbell_runs_once(fleet: WorkerFleet, private_redis: RedisServer) -> None:
    fleet.start_worker()
    route = fleet.ready()
    port = str(free_port())
    api = fleet.start_api(port)
    base = f"http://127.0.0.1:{port}"
    until(lambda: answers(f"{base}/health"))
    body = {"exec_id": "orphan", "generation": route.generation, "argv": ["sh", "-c", "echo run >> runs; cat runs"]}
    post = threading.Thread(target=send, args=(f"{base}/api/v1/sandboxes/{route.key.sandbox_id}/exec", body))
    # Without a broker the doorbell cannot leave; the row is committed all the same.
    private_redis.kill()
    post.start()
    key = ExecKey(*route.key, "orphan")
    fleet.until_admitted(key)
    os.killpg(api.pid, signal.SIGKILL)
    post.join()
    record = fleet.ended(key)
    assert (record.status, record.stdout) == (ExecStatus.SUCCEEDED, b"run\n")


def answers(url: str) -> bool:
    try:
        return httpx.get(url, trust_env=False).status_code == 200
    except httpx.HTTPError:
        return False


def send(url: str, body: dict[str, object]) -> None:
    # The process that would answer is killed.
    with contextlib.suppress(httpx.HTTPError):
        httpx.post(url, json=body, headers={"Authorization": "Bearer a-token-of-the-test"}, trust_env=False, timeout=60)
