"""Messages: repeated, forged, garbled, lost."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import redis

from sandloom.broker.envelope import SigningKey, fleet_key, seal
from sandloom.direct import Fleet
from sandloom.errors import StaleRoute
from sandloom.execs.records import ExecRequest
from sandloom.execs.states import ExecStatus
from sandloom.ids import ExecKey
from tests.acceptance.worker_fleet import WorkerFleet, until

pytestmark = [pytest.mark.bwrap, pytest.mark.slow]


@pytest.fixture
def fleet(postgres_url: str, redis_url: str, data_dir: Path) -> Iterator[WorkerFleet]:
    fleet = WorkerFleet(postgres_url, redis_url, data_dir)
    yield fleet
    fleet.close()


def test_a_command_runs_once_however_often_it_is_rung(fleet: WorkerFleet) -> None:
    fleet.start_worker()
    route = fleet.ready()
    key = fleet.shell(route, "echo ran >> /workspace/count; sleep 0.5")
    for _ in range(50):
        fleet.services.publisher.ring(route.queue, key, route.generation)
    fleet.ended(key)
    for _ in range(50):
        fleet.services.publisher.ring(route.queue, key, route.generation)
    assert fleet.run(route, "cat /workspace/count").stdout == b"ran\n"


def test_a_doorbell_of_another_generation_starts_nothing(fleet: WorkerFleet) -> None:
    fleet.start_worker()
    route = fleet.ready()
    wrong = ExecKey(*route.key, "no-such-exec")
    for generation in (route.generation - 1, route.generation + 1, route.generation):
        fleet.services.publisher.ring(route.queue, wrong, generation)
    assert fleet.run(route, "echo on").stdout == b"on\n"
    records, total = fleet.execs.list(route.key, 10, 0)
    assert total == 1
    assert records[0].key != wrong


def test_forged_and_garbled_messages_do_nothing_and_the_worker_goes_on(fleet: WorkerFleet) -> None:
    worker = fleet.start_worker()
    route = fleet.ready()
    fleet.file(route, "target", b"untouched")
    arguments = {"sandbox_id": "box", "generation": route.generation, "path": "/workspace/target"}

    def send(task: str, kwargs: Any) -> None:
        fleet.services.publisher.send(route.queue, task, kwargs)

    delete = "sandloom.files.delete"
    forger = SigningKey("fleet", b"guessed")
    good = seal(
        fleet_key("a-secret-key-of-the-test"), tenant_id="default", task=delete, args=arguments,
        deadline_seconds_from_now=60,
    )  # fmt: skip
    send(
        delete,
        {"envelope": seal(forger, tenant_id="default", task=delete, args=arguments, deadline_seconds_from_now=60)},
    )
    send(delete, {"envelope": {**good, "tenant_id": "other"}})
    send(delete, {"envelope": {**good, "args": {**arguments, "recursive": True}}})
    send("sandloom.files.write", {"envelope": good})
    send(delete, {"envelope": good, "extra": 1})
    send(delete, {"envelope": None})
    send(delete, arguments)
    send("sandloom.ring", {"v": 2, "anything": ["x"] * 100})
    send("sandloom.ring", {"v": 1, "tenant_id": 1, "sandbox_id": None, "exec_id": "", "generation": "1"})
    send("sandloom.exec", {"envelope": {"argv": ["touch", "/workspace/forged"]}})
    send("celery.chunks", {"it": 1})
    send("os.system", {"command": "true"})
    _push_garbage(fleet, route.queue)

    assert fleet.read(route, "target") == b"untouched"
    assert fleet.run(route, "ls /workspace").stdout == b"target\n"
    assert worker.running
    broker = redis.Redis.from_url(fleet.settings.broker_url)
    # What nobody acknowledges is delivered again and again.
    until(lambda: not broker.hlen(f"{fleet.settings.broker_namespace}:unacked"))
    assert "a-secret-key-of-the-test" not in worker.output()


def _push_garbage(fleet: WorkerFleet, queue: str) -> None:
    """What a client of Redis itself can put into the list."""
    client = redis.Redis.from_url(fleet.settings.broker_url)
    whole = {
        "body": "bm90IGpzb24=", "content-encoding": "utf-8", "content-type": "application/json",
        "headers": {"task": "sandloom.files.delete", "id": "1"},
        "properties": {
            "delivery_tag": "t1", "delivery_info": {"exchange": "", "routing_key": queue}, "body_encoding": "base64",
        },
    }  # fmt: skip
    documents: list[bytes] = [b"not json at all", b"[]", b"{}", b"\xff\xfe", json.dumps(whole).encode()]
    without_id = json.loads(json.dumps(whole))
    del without_id["headers"]["id"]
    pickled = json.loads(json.dumps(whole))
    pickled["content-type"] = "application/x-python-serialize"
    no_headers = json.loads(json.dumps(whole))
    no_headers["headers"] = None
    by_position = json.loads(json.dumps(whole))
    by_position["body"] = base64.b64encode(b"[[1], {}, {}]").decode()
    by_position["headers"]["task"] = "sandloom.exec"
    by_position["properties"]["delivery_tag"] = "t2"
    broken = (without_id, pickled, no_headers, by_position)
    documents += [json.dumps(document).encode() for document in broken]
    for document in documents:
        client.lpush(f"{fleet.settings.broker_namespace}:{queue}", document)


def test_a_file_change_is_done_once_however_often_it_is_delivered(fleet: WorkerFleet) -> None:
    fleet.start_worker()
    route = fleet.ready()
    fleet.file(route, "a", b"first")
    arguments = {
        "sandbox_id": "box", "generation": route.generation, "source": "/workspace/a", "destination": "/workspace/b",
    }  # fmt: skip
    envelope = seal(
        fleet.services.keys.fleet, tenant_id="default", task="sandloom.files.move", args=arguments,
        deadline_seconds_from_now=60,
    )  # fmt: skip
    fleet.services.publisher.send(route.queue, "sandloom.files.move", {"envelope": envelope})
    until(lambda: fleet.run(route, "ls /workspace").stdout == b"b\n")
    fleet.file(route, "a", b"second")
    fleet.services.publisher.send(route.queue, "sandloom.files.move", {"envelope": envelope})
    assert fleet.read(route, "a") == b"second"
    assert fleet.run(route, "cat /workspace/a /workspace/b").stdout == b"secondfirst"


def test_a_tenant_is_another_world(fleet: WorkerFleet) -> None:
    fleet.start_worker()
    mine = fleet.ready("same", "tenant-a")
    other = fleet.ready("same", "tenant-b")
    fleet.file(mine, "secret", b"of a")
    assert mine.sandbox_uid != other.sandbox_uid
    assert fleet.run(other, "ls -A /workspace").stdout == b""


def test_a_doorbell_that_was_never_sent_is_made_up_for(fleet: WorkerFleet) -> None:
    fleet.start_worker()
    route = fleet.ready()
    admitted, _, _ = fleet.execs.admit(route.key, route.generation, ExecRequest("unrung-exec", ("echo", "found")))
    assert fleet.ended(admitted.key).stdout == b"found\n"


def test_direct_requests_become_rows_and_their_record_is_the_result(fleet: WorkerFleet) -> None:
    fleet.start_worker()
    route = fleet.ready()
    client = Fleet(fleet.settings.broker_url, api_key="a-token-of-the-test", namespace=fleet.settings.broker_namespace)
    arguments = {
        "sandbox_id": "box", "generation": route.generation, "exec_id": "direct-1", "argv": ["echo", "straight"],
    }  # fmt: skip
    record = client.call("sandloom.exec", arguments, owner_queue=route.queue)
    assert (record["status"], record["stdout"]) == ("SUCCEEDED", "straight\n")
    assert fleet.execs.get(ExecKey(*route.key, "direct-1")).status is ExecStatus.SUCCEEDED
    # The same request again is the same record; through dispatch it finds its owner.
    assert client.call("sandloom.exec", arguments) == record
    with pytest.raises(StaleRoute):
        client.call("sandloom.exec", {**arguments, "exec_id": "direct-2", "generation": route.generation + 1})
    client.close()


def test_the_result_of_a_direct_exec_survives_its_worker(fleet: WorkerFleet) -> None:
    worker = fleet.start_worker()
    route = fleet.ready()
    client = Fleet(fleet.settings.broker_url, api_key="a-token-of-the-test", namespace=fleet.settings.broker_namespace)
    arguments = {
        "sandbox_id": "box", "generation": route.generation, "exec_id": "direct-1", "argv": ["sleep", "4777.5"],
    }  # fmt: skip
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(client.call, "sandloom.exec", arguments, owner_queue=route.queue)
        fleet.until_running(ExecKey(*route.key, "direct-1"))
        worker.kill()
        fleet.start_worker()
        assert waiting.result(120)["status"] == "WORKER_LOST"
    client.close()


def test_remote_control_looks_but_does_not_touch(fleet: WorkerFleet) -> None:
    worker = fleet.start_worker()
    route = fleet.ready()
    client = Fleet(fleet.settings.broker_url, api_key="a-token-of-the-test", namespace=fleet.settings.broker_namespace)
    arguments = {
        "sandbox_id": "box", "generation": route.generation, "exec_id": "direct-1",
        "argv": ["sleep", "4788.5"], "env": {"HIDDEN": "not-for-flower"},
    }  # fmt: skip
    task = client.signature("sandloom.exec", arguments, owner_queue=route.queue).apply_async()
    key = ExecKey(*route.key, "direct-1")
    fleet.until_running(key)
    control = client.app.control
    for command in ("shutdown", "pool_restart", "pool_shrink", "add_consumer", "memdump"):
        control.broadcast(command, arguments={"queue": "q"} if command == "add_consumer" else {})
    active = control.inspect(timeout=60, limit=1).active()
    assert active is not None
    (tasks,) = active.values()
    assert [found["name"] for found in tasks] == ["sandloom.exec"]
    assert "not-for-flower" not in repr(tasks)
    assert worker.running
    # Revoking by task id is a cancel.
    control.revoke(task.id, terminate=True)
    assert fleet.ended(key).status is ExecStatus.CANCELLED
    client.close()
