"""The direct client against a real worker: PostgreSQL, Redis, bubblewrap."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from celery import chain, group

from sandloom.direct import Fleet
from sandloom.direct.tasks import EXEC
from sandloom.errors import (
    DirectoryNotEmpty,
    EnvelopeRefused,
    FileMissing,
    ProgramNotFound,
    ScopeMismatch,
    StaleRoute,
    ValidationFailed,
)
from sandloom.ids import ExecKey
from tests.acceptance.worker_fleet import WorkerFleet

pytestmark = [pytest.mark.root, pytest.mark.bwrap, pytest.mark.slow]
LONG_SECONDS = 60.0


@pytest.fixture
def workers(postgres_url: str, redis_url: str, new_data_dir: Callable[[], Path]) -> Iterator[WorkerFleet]:
    running = WorkerFleet(postgres_url, redis_url, new_data_dir())
    try:
        running.start_worker("w1")
        yield running
    finally:
        running.close()


def client(workers: WorkerFleet, token: str = "a-token-of-the-test") -> Fleet:
    environ = workers.environ
    return Fleet(environ["SANDBOX_BROKER_URL"], api_key=token, namespace=environ["SANDBOX_BROKER_NAMESPACE"])


def test_the_lifecycle_of_the_contract(workers: WorkerFleet) -> None:
    fleet = client(workers)
    box = fleet.sandbox("my-agent", scope="team/a")
    assert box.route.worker_endpoint == "sandloom.worker.w1"
    result = box.run(["python3", "-c", "print(1)"])
    assert (result.exit_code, result.stdout, result.ok) == (0, "1\n", True)
    box.files.write("/workspace/a.txt", "hello")
    assert box.run(["cat", "/workspace/a.txt"]).stdout == "hello"
    assert box.files.read("/workspace/a.txt") == b"hello"
    box.files.mkdir("/workspace/d")
    box.files.move("/workspace/a.txt", "/workspace/d/b.txt")
    assert [entry.name for entry in box.files.list()] == ["d"]
    assert box.files.stat("/workspace/d/b.txt").size_bytes == 5
    with pytest.raises(DirectoryNotEmpty):
        box.files.delete("/workspace/d")
    box.files.delete("/workspace/d", recursive=True)
    with pytest.raises(FileMissing):
        box.files.read("/workspace/a.txt")
    box.run(["mkdir", "-p", "/envs/made"])
    published = box.publish_template("made", "/envs/made")
    assert [template.digest for template in fleet.templates()] == [published.digest]
    user = fleet.sandbox("another", scope="team/a")
    assert [template.name for template in user.attach_templates(f"made@{published.digest}")] == ["made"]
    assert fleet.unpublish_template("made").digest == published.digest
    assert fleet.templates() == []
    copy = box.fork()
    assert (copy.route.workspace, copy.route.workspace_scope_id) == ("kept", "team/a")
    assert copy.run(["ls", "/envs"]).stdout == "made\n"
    assert copy.release() == "RELEASED"
    assert box.release() == "RELEASED"
    with pytest.raises(StaleRoute):
        box.run(["true"])
    fleet.close()


def test_signatures_run_in_a_chain_a_group_and_again_without_a_second_run(workers: WorkerFleet) -> None:
    fleet = client(workers)
    box = fleet.sandbox("my-agent", scope="team/a")
    first = box.exec_signature(["sh", "-c", "echo one >> /workspace/log"])
    second = box.exec_signature(["cat", "/workspace/log"])
    result: Any = chain(first, second, app=fleet.app).apply_async()
    assert result.get(timeout=LONG_SECONDS)["stdout"] == "one\n"
    again = first.apply_async()
    assert again.get(timeout=LONG_SECONDS)["exec_id"] == result.parent.get(timeout=LONG_SECONDS)["exec_id"]
    assert box.run(["cat", "/workspace/log"]).stdout == "one\n"
    parts = [box.exec_signature(["echo", str(number)], exec_scope=f"s-{number}") for number in range(4)]
    records = group(parts, app=fleet.app).apply_async().get(timeout=LONG_SECONDS)
    assert [record["stdout"] for record in records] == ["0\n", "1\n", "2\n", "3\n"]
    fleet.close()


def test_errors_are_the_same_as_over_rest(workers: WorkerFleet) -> None:
    fleet = client(workers)
    box = fleet.sandbox("my-agent", scope="team/a")
    stranger = client(workers, token="another token")
    with pytest.raises(ScopeMismatch):
        fleet.sandbox("my-agent", scope="team/b")
    missing = box.run(["no-such-program"])
    assert (missing.exit_code, missing.error) == (127, ProgramNotFound.code)
    with pytest.raises(ValidationFailed):
        box.run([])
    with pytest.raises(EnvelopeRefused):
        stranger.sandbox("my-agent", scope="team/a")
    stranger.close()
    fleet.close()


def test_a_request_without_a_known_owner_finds_it_through_dispatch(workers: WorkerFleet) -> None:
    workers.start_worker("w2")
    fleet = client(workers)
    boxes = [fleet.sandbox(f"agent-{number}", scope="team/a") for number in range(4)]

    def run(number: int) -> str:
        named = {"sandbox_id": boxes[number].id, "generation": boxes[number].generation}
        command = {"exec_id": f"exec-{number}", "argv": ["echo", str(number)]}
        return str(fleet.call(EXEC, named | command)["stdout"])

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(run, range(4))) == ["0\n", "1\n", "2\n", "3\n"]
    for number, box in enumerate(boxes):
        assert workers.execs.get(ExecKey("default", box.id, f"exec-{number}")).worker_id == box.route.worker_id
    fleet.close()
