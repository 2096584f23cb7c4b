"""The direct client over Redis, with a real Celery worker that answers for the node."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from typing import Any, cast

import pytest
from celery import Celery, _state, chain, group
from celery.signals import worker_ready

from sandloom.broker.envelope import OPERATOR_KEY_ID, Verifier, operator_key
from sandloom.broker.queues import transport_options, worker_queues
from sandloom.direct import Fleet
from sandloom.direct.tasks import ARGUMENTS, EXEC, READ, RELEASE, RESOLVE
from sandloom.errors import FileMissing, SettingsInvalid, Unavailable, WorkerLost
from tests.services.account import free_port
from tests.services.redis import RedisServer

TOKEN = "the operator's token"
NAMESPACE = "blue"
LONG_SECONDS = 60.0
pytestmark = [pytest.mark.server, pytest.mark.filterwarnings("ignore::celery.platforms.SecurityWarning")]

ROUTE = {
    "sandbox_id": "my-agent", "workspace_scope_id": "team/a", "worker_id": "w-1", "worker_epoch": 1,
    "worker_endpoint": "sandloom.worker.w-1", "expires_at": None, "generation": 3, "sandbox_uid": 20000,
    "status": "READY", "storage_mode": "local", "profile_id": "coding-default", "profile_hash": "0" * 16,
    "workspace": "new",
}  # fmt: skip
RECORD = {
    "sandbox_id": "my-agent", "generation": 3, "status": "SUCCEEDED", "exec_scope": None, "exit_code": 0,
    "signal": None, "reason": "exit", "detail": None, "error": None, "stderr": "", "truncated": False,
    "duration_ms": 1, "queued_ms": 1, "usage": None, "labels": {}, "last_seq": 4,
    "created_at": "2026-01-01T00:00:00.000+00:00", "started_at": None, "finished_at": None,
}  # fmt: skip


class Answering:
    """A Celery worker that verifies each request and answers with what the contract says."""

    def __init__(self, url: str) -> None:
        self.verifier = Verifier({OPERATOR_KEY_ID: operator_key(TOKEN)})
        self.seen: list[tuple[str, str, dict[str, Any]]] = []
        self.app = Celery("node", broker=url, backend=url, set_as_current=False)
        self.app.conf.update(
            broker_transport_options=transport_options(url, NAMESPACE, consume=True),
            result_backend_transport_options={"global_keyprefix": f"{NAMESPACE}:"},
            task_queues=worker_queues("w-1"),
            task_default_queue="sandloom.maintenance",
            task_default_exchange="",
            task_create_missing_queues=False,
            task_routes=("sandloom.direct.routing:task_router",),
            worker_hijack_root_logger=False,
            worker_redirect_stdouts=False,
        )
        for name in ARGUMENTS:
            self.app.task(name=name, bind=True, shared=False, throws=(FileMissing,))(self._answer(name))
        self._uid = uuid.uuid4().hex
        self._ready = threading.Event()
        worker_ready.connect(self._on_ready, weak=False, dispatch_uid=self._uid)
        self._worker: Any = self.app.Worker(hostname="w-1@test", pool="threads", concurrency=4, quiet=True)
        self._thread = threading.Thread(target=self._worker.start, daemon=True)
        self._thread.start()
        assert self._ready.wait(LONG_SECONDS)

    def _answer(self, name: str) -> Any:
        def answer(task: Any, envelope: dict[str, Any]) -> dict[str, Any]:
            request = self.verifier.open(envelope, task=name)
            self.seen.append((name, str(task.request.delivery_info["routing_key"]), request.args))
            if name == RESOLVE:
                return ROUTE
            if name == READ:
                raise FileMissing("no such file")
            if name == RELEASE:
                return {"sandbox_id": "my-agent", "status": "RELEASED"}
            argv = request.args["argv"]
            return {**RECORD, "exec_id": request.args["exec_id"], "argv": argv, "stdout": " ".join(argv)}

        return answer

    def _on_ready(self, sender: Any = None, **_: Any) -> None:
        if sender.app is self.app:
            self._ready.set()

    def stop(self) -> None:
        self._worker.stop()
        self._thread.join(LONG_SECONDS)
        worker_ready.disconnect(dispatch_uid=self._uid)
        # A worker marks its whole process as one in which nobody may wait for results.
        cast(Any, _state)._set_task_join_will_block(False)
        assert not self._thread.is_alive()


@pytest.fixture
def node(redis_url: str) -> Iterator[Answering]:
    running = Answering(redis_url)
    yield running
    running.stop()


@pytest.fixture
def fleet(redis_url: str) -> Iterator[Fleet]:
    opened = Fleet(redis_url, api_key=TOKEN, namespace=NAMESPACE)
    yield opened
    opened.close()


def test_the_way_of_the_contract(node: Answering, fleet: Fleet) -> None:
    box = fleet.sandbox("my-agent", scope="team/a")
    result = box.run(["python3", "-c", "print(1)"])
    assert (result.exit_code, result.ok, result.stdout) == (0, True, "python3 -c print(1)")
    assert box.release() == "RELEASED"
    assert [(task, queue) for task, queue, _ in node.seen] == [
        (RESOLVE, "sandloom.dispatch"),
        (EXEC, "sandloom.worker.w-1"),
        (RELEASE, "sandloom.worker.w-1"),
    ]
    assert node.seen[1][2]["generation"] == 3


def test_an_error_of_the_worker_is_raised_as_what_it_was(node: Answering, fleet: Fleet) -> None:
    box = fleet.sandbox("my-agent", scope="team/a")
    with pytest.raises(FileMissing, match="no such file"):
        box.files.read("/workspace/a")


def test_a_chain_and_a_group_of_signatures_run_and_bring_their_records(node: Answering, fleet: Fleet) -> None:
    box = fleet.sandbox("my-agent", scope="team/a")
    one, two, three = (box.exec_signature(["echo", word]) for word in ("one", "two", "three"))
    last = chain(one, two, app=fleet.app).apply_async()
    # This process also is the worker, so Celery takes the wait for one inside a task.
    assert last.get(timeout=LONG_SECONDS, disable_sync_subtasks=False)["stdout"] == "echo two"
    together = group(one, three, app=fleet.app).apply_async()
    results = together.get(timeout=LONG_SECONDS, disable_sync_subtasks=False)
    assert sorted(record["stdout"] for record in results) == ["echo one", "echo three"]
    assert {queue for task, queue, _ in node.seen if task == EXEC} == {"sandloom.worker.w-1"}


def test_several_threads_share_a_fleet(node: Answering, fleet: Fleet) -> None:
    box = fleet.sandbox("my-agent", scope="team/a")
    outputs: dict[int, str | None] = {}

    def run(number: int) -> None:
        outputs[number] = box.run(["echo", str(number)]).stdout

    threads = [threading.Thread(target=run, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG_SECONDS)
    assert outputs == {number: f"echo {number}" for number in range(8)}


def test_results_are_found_after_a_restart_of_the_backend(private_redis: RedisServer) -> None:
    fleet = Fleet(private_redis.url(), api_key=TOKEN, namespace=NAMESPACE)
    node = Answering(private_redis.url())
    try:
        box = fleet.sandbox("my-agent", scope="team/a")
        private_redis.restart()
        assert box.run(["echo", "again"]).stdout == "echo again"
    finally:
        node.stop()
        fleet.close()


def test_a_result_that_was_read_leaves_nothing_in_the_backend(
    node: Answering, fleet: Fleet, redis_server: RedisServer, redis_url: str
) -> None:
    fleet.sandbox("my-agent", scope="team/a")
    with redis_server.client(int(redis_url.rpartition("/")[2])) as client:
        assert client.keys("*celery-task-meta*") == []


def test_without_a_result_backend_calls_say_what_is_missing() -> None:
    fleet = Fleet("amqp://u:hunter2@127.0.0.1:1//", api_key=TOKEN)
    with pytest.raises(SettingsInvalid, match="result_backend"):
        fleet.sandbox("my-agent", scope="team/a")


def test_without_a_worker_the_call_ends_with_its_wait(fleet: Fleet) -> None:
    with pytest.raises(WorkerLost):
        fleet.call(RESOLVE, {"sandbox_id": "my-agent", "workspace_scope_id": "team/a"}, wait_seconds=0.1)


def test_without_a_broker_the_call_is_unavailable_and_shows_no_password() -> None:
    fleet = Fleet(f"redis://:hunter2@127.0.0.1:{free_port()}/0", api_key=TOKEN)
    with pytest.raises(Unavailable) as caught:
        fleet.sandbox("my-agent", scope="team/a")
    assert "hunter2" not in str(caught.value)
