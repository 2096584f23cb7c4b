"""The whole service in one process, without other servers."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.acceptance.worker_fleet import CLI, processes_with, until
from tests.services.account import free_port
from tests.services.process import Process, base_environment

pytestmark = [pytest.mark.bwrap, pytest.mark.slow]

Start = Callable[[], tuple[Process, httpx.Client]]


@pytest.fixture
def start(data_dir: Path) -> Iterator[Start]:
    """Starts the service on the test's data directory, as often as the test likes."""
    started: list[Process] = []
    clients: list[httpx.Client] = []

    def begin() -> tuple[Process, httpx.Client]:
        port = free_port()
        environ = {
            "SANDBOX_DATA_DIR": str(data_dir),
            "SANDBOX_PORT": str(port),
            "SANDBOX_INTERNAL_TOKEN": "token-of-test",
        }
        log_path = data_dir / f"up-{len(started)}.log"
        process = Process([*CLI, "up"], log_path=log_path, env=base_environment(**environ))
        started.append(process)
        process.wait_for_output("serving")
        client = httpx.Client(
            base_url=f"http://127.0.0.1:{port}/api/v1", headers={"Authorization": "Bearer token-of-test"}, timeout=120,
            trust_env=False,
        )  # fmt: skip
        clients.append(client)
        return process, client

    yield begin
    for client in clients:
        client.close()
    for process in started:
        process.stop()


def resolve(client: httpx.Client) -> dict[str, Any]:
    answer = client.post("/sandboxes/resolve", json={"sandbox_id": "box", "workspace_scope_id": "scope"})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def run(client: httpx.Client, generation: int, exec_id: str, script: str, **more: Any) -> httpx.Response:
    body = {"exec_id": exec_id, "generation": generation, "argv": ["sh", "-c", script], **more}
    return client.post("/sandboxes/box/exec", json=body)


def test_a_workspace_outlives_a_clean_end(start: Start) -> None:
    process, client = start()
    route = resolve(client)
    record = run(client, route["generation"], "exec-1", "echo kept > /workspace/a; cat /workspace/a").json()
    assert (record["status"], record["stdout"]) == ("SUCCEEDED", "kept\n")
    process.send_signal(signal.SIGTERM)
    assert process.wait() == 0
    assert "Traceback" not in process.output()

    _, client = start()
    again = resolve(client)
    assert (again["generation"], again["workspace"]) == (route["generation"] + 1, "kept")
    assert run(client, again["generation"], "exec-2", "cat /workspace/a").json()["stdout"] == "kept\n"
    # An exec id is used once, across restarts.
    assert run(client, again["generation"], "exec-1", "echo kept > /workspace/a; cat /workspace/a").json() == record
    assert client.delete("/sandboxes/box").json()["status"] == "RELEASED"


def test_a_killed_service_loses_no_accepted_command(start: Start) -> None:
    process, client = start()
    generation = resolve(client)["generation"]
    run(client, generation, "exec-1", "sleep 4799.5", background=True, exec_scope="one")
    until(lambda: bool(processes_with("4799.5")))
    process.kill()
    until(lambda: not processes_with("4799.5"))
    _, client = start()
    record = client.get("/sandboxes/box/exec/exec-1", params={"wait": 60}).json()
    assert (record["status"], record["error"]) == ("WORKER_LOST", "SANDBOX_WORKER_LOST")


def test_a_second_service_over_the_same_directory_is_refused_before_it_touches_anything(
    start: Start, data_dir: Path
) -> None:
    process, _ = start()
    environ = {"SANDBOX_DATA_DIR": str(data_dir), "SANDBOX_PORT": str(free_port()), "SANDBOX_INTERNAL_TOKEN": "other"}
    second = Process([*CLI, "up"], log_path=data_dir / "second.log", env=base_environment(**environ))
    assert second.wait() == 2
    assert "SANDBOX_WORKER_ID_IN_USE" in second.output()
    assert "alembic" not in second.output()
    assert process.running
