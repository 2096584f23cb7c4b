"""The direct client against a real worker: PostgreSQL, Redis, bubblewrap."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from celery import chain, group
from sqlalchemy import Connection, delete

from sandloom.broker.api_keys import KeyMint
from sandloom.db.tables import sandbox_history, sandboxes
from sandloom.direct import Fleet
from sandloom.direct.tasks import ARGUMENTS, EXEC, LIST_TEMPLATES, RESOLVE, STAT
from sandloom.errors import (
    DirectoryNotEmpty,
    EnvelopeRefused,
    FileMissing,
    KeyScopeMissing,
    ProgramNotFound,
    SandloomError,
    ScopeMismatch,
    StaleRoute,
    ValidationFailed,
)
from sandloom.ids import ExecKey
from sandloom.tenants.keys import Keys as TenantKeys
from sandloom.tenants.records import KeyScope
from tests.acceptance.worker_fleet import WorkerFleet, until
from tests.strangers import EXEC as EXEC_ID
from tests.strangers import SANDBOX, arguments

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


def client(workers: WorkerFleet, token: str = "a-token-of-the-test", **options: str) -> Fleet:
    environ = workers.environ
    namespace = environ["SANDBOX_BROKER_NAMESPACE"]
    return Fleet(environ["SANDBOX_BROKER_URL"], api_key=token, namespace=namespace, **options)


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


def test_a_key_of_another_tenant_finds_nothing_behind_any_task(workers: WorkerFleet) -> None:
    services = workers.services
    route = workers.ready(SANDBOX, "them")
    workers.ended(workers.shell(route, "touch /workspace/file", EXEC_ID))
    keys = TenantKeys(services.db, KeyMint("a-secret-key-of-the-test"))
    made, text = keys.create("stranger", "test", [KeyScope.TASKS], "test")
    stranger, theirs = client(workers, text), client(workers, keys.create("them", "test", KeyScope, "test")[1])
    for task, model in ARGUMENTS.items():
        # Straight to the owner, and through the queue that every worker serves.
        for queue in (route.queue, None):
            found = raised(partial(stranger.call, task, arguments(model), owner_queue=queue))
            if task == RESOLVE:
                assert found["generation"] == 1, found
                forget_own(workers)
            elif task == LIST_TEMPLATES:
                assert found == {"templates": []}
            else:
                assert isinstance(found, SandloomError), (task, found)
                assert found.status == 404, (task, found)
    assert theirs.call(STAT, arguments(ARGUMENTS[STAT]), owner_queue=route.queue)["type"] == "file"
    assert workers.execs.get(ExecKey(*route.key, EXEC_ID)).status == "SUCCEEDED"

    with pytest.raises(EnvelopeRefused):
        client(workers, text, tenant_id="them")
    stranger._tenant_id = "them"  # what the client refuses, a forger does not
    assert isinstance(raised(partial(stranger.call, STAT, arguments(ARGUMENTS[STAT]))), EnvelopeRefused)
    stranger._tenant_id = "stranger"
    keys.revoke("stranger", made.key_id)
    until(lambda: isinstance(raised(partial(stranger.call, LIST_TEMPLATES, {})), EnvelopeRefused))
    reader = client(workers, keys.create("them", "reads", [KeyScope.READ], "test")[1])
    assert isinstance(raised(partial(reader.call, LIST_TEMPLATES, {})), KeyScopeMissing)
    for fleet in (stranger, theirs, reader):
        fleet.close()


def forget_own(workers: WorkerFleet) -> None:
    """The id must be nobody's in the stranger's tenant again, or the walk would go on with that."""

    def remove(connection: Connection) -> None:
        for table in (sandboxes, sandbox_history):
            connection.execute(delete(table).where(table.c.tenant_id == "stranger"))

    workers.services.db.write(remove)


def raised(call: Callable[[], Any]) -> Any:
    """The result, or the error that came instead."""
    try:
        return call()
    except SandloomError as error:
        return error
