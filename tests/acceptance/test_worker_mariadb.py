"""The main job of an agent, a worker that is killed and a server that restarts, with MariaDB as the database."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sandloom import Client
from sandloom.execs.states import ExecStatus
from sandloom.ids import SandboxKey
from tests.acceptance.test_worker_api_crash import answers
from tests.acceptance.worker_fleet import WorkerFleet, until
from tests.services.account import free_port
from tests.services.mariadb import MariaDBServer

pytestmark = [pytest.mark.bwrap, pytest.mark.slow]


@pytest.fixture
def fleet(private_mariadb: MariaDBServer, redis_url: str, data_dir: Path) -> Iterator[WorkerFleet]:
    fleet = WorkerFleet(private_mariadb.new_database(), redis_url, data_dir)
    yield fleet
    fleet.close()


@pytest.fixture
def client(fleet: WorkerFleet) -> Iterator[Client]:
    port = str(free_port())
    fleet.start_api(port)
    base = f"http://127.0.0.1:{port}"
    until(lambda: answers(f"{base}/health"))
    with Client(base, fleet.environ["SANDBOX_INTERNAL_TOKEN"]) as client:
        yield client


def test_the_main_job_survives_a_killed_worker_and_a_restart_of_the_database(
    fleet: WorkerFleet, client: Client, private_mariadb: MariaDBServer
) -> None:
    worker = fleet.start_worker()
    box = client.sandbox("box")
    box.files.write("/workspace/input", b"\x00\xff bytes")
    result = box.run("printf 'é\\377'; wc -c < input; echo done > output; exit 3")
    assert (result.status, result.exit_code) == ("FAILED", 3)
    assert box.files.read("/workspace/output") == b"done\n"
    assert [event.text for event in box.stream("echo streamed") if event.kind == "stdout"] == ["streamed\n"]

    running = box.start("echo ran >> runs; echo begun; sleep 4755.5", exec_id="running")
    assert next(event.text for event in running.events() if event.kind == "stdout") == "begun\n"
    before = box.generation
    worker.kill()
    fleet.start_worker()
    assert running.wait().status == "WORKER_LOST"
    assert box.files.read("/workspace/runs") == b"ran\n"
    assert (box.generation, box.route.workspace) == (before + 1, "kept")

    key = fleet.shell(
        fleet.sandboxes.get(SandboxKey("default", "box")),
        "echo before; until [ -e go ]; do sleep 0.05; done; echo after",
    )
    fleet.until_running(key)
    private_mariadb.kill()
    private_mariadb.start()
    box.files.write("/workspace/go", b"")
    record = fleet.ended(key)
    assert (record.status, record.stdout) == (ExecStatus.SUCCEEDED, b"before\nafter\n")

    assert box.release() == "RELEASED"
    assert list(fleet.root().rglob("runs")) == []
