"""Celery's canvas over a real fleet: what follows a command is done once, also when its worker is gone.

The last tests restart and kill workers of the same fleet.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from celery import Celery, _state, chain, chord, group
from celery.signals import worker_ready

from sandloom.direct import Fleet
from sandloom.errors import FileMissing, StaleRoute
from sandloom.execs.states import ExecStatus
from sandloom.ids import ExecKey
from tests.acceptance.client.test_examples import CHECKS
from tests.acceptance.direct_fleet import LONG_SECONDS, DirectFleet, boxes_on, until_state
from tests.acceptance.worker_fleet import SHORT_LEASE, until
from tests.services.account import passable_directory, remove_tree
from tests.services.postgres import PostgresServer
from tests.services.process import ROOT, base_environment
from tests.services.redis import RedisServer

pytestmark = [pytest.mark.root, pytest.mark.bwrap, pytest.mark.slow, pytest.mark.server]


@pytest.fixture(scope="module")
def fleet(postgres: PostgresServer, redis_server: RedisServer) -> Iterator[DirectFleet]:
    directory = passable_directory("sandloom-direct")
    running = DirectFleet(postgres.new_database(), redis_server.new_url(), directory)
    try:
        yield running
    finally:
        running.close()
        remove_tree(directory)


@pytest.fixture
def client(fleet: DirectFleet) -> Iterator[Fleet]:
    opened = fleet.client()
    yield opened
    opened.close()


def test_the_example_runs_a_group_a_chord_a_chain_and_ends_a_command(fleet: DirectFleet, tmp_path: Path) -> None:
    env = base_environment(PYTHONPATH=str(ROOT), **fleet.variables)
    argv = [sys.executable, str(ROOT / "examples" / "celery_direct.py")]
    done = subprocess.run(argv, env=env, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines() == [
        "group: ['1', '4', '9']",
        "chord: 91",
        "chain: ['built', 'tested']",
        "beside the revoked one: goes on, released: RELEASED",
    ]


@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
def test_the_examples_of_the_rest_clients_run_against_a_fleet(check: Any, fleet: DirectFleet, tmp_path: Path) -> None:
    fleet.until_api()
    check(base_environment(PYTHONPATH=str(ROOT), **fleet.variables), tmp_path)


def test_a_task_is_started_when_its_command_is_and_says_where(client: Fleet) -> None:
    (box,) = boxes_on(client, "started", "w2")
    result = box.exec_signature(
        ["sh", "-c", "until [ -e go ]; do sleep 0.05; done; echo went"], exec_scope="waits"
    ).apply_async()
    until_state(result, "STARTED")
    assert "w2" in result.info["hostname"]
    box.files.write("/workspace/go", "")
    assert result.get(timeout=LONG_SECONDS)["stdout"] == "went\n"


def test_a_task_with_a_countdown_is_not_admitted_before(fleet: DirectFleet, client: Fleet) -> None:
    (box,) = boxes_on(client, "later", "w1")
    sent_us = time.time_ns() // 1000
    result = box.exec_signature(["true"], exec_id="later-exec").apply_async(countdown=2)
    assert result.get(timeout=LONG_SECONDS)["status"] == "SUCCEEDED"
    assert fleet.execs.get(ExecKey("default", box.id, "later-exec")).queued_us - sent_us > 1_900_000


def test_a_chain_leads_from_one_owner_to_another(fleet: DirectFleet, client: Fleet) -> None:
    first, second = boxes_on(client, "chained", "w1", "w2")
    steps = [box.exec_signature(["touch", "here"], exec_id="chained-exec") for box in (first, second)]
    chain(*steps, app=client.app).apply_async().get(timeout=LONG_SECONDS)
    for box, worker in ((first, "w1"), (second, "w2")):
        record = fleet.execs.get(ExecKey("default", box.id, "chained-exec"))
        assert (record.worker_id, record.status) == (worker, ExecStatus.SUCCEEDED)
        # Sent to its owner, and not found by the sweep of its rows.
        assert record.task_id is not None


def test_an_error_calls_its_errback_and_a_failed_command_is_no_error(client: Fleet) -> None:
    (box,) = boxes_on(client, "errors", "w1")
    errback = box.exec_signature(["touch", "/workspace/called"], exec_scope="errback")
    failed = box.exec_signature(["false"], exec_scope="fails").on_error(errback).apply_async()
    assert failed.get(timeout=LONG_SECONDS)["exit_code"] == 1
    with pytest.raises(FileMissing):
        box.files.stat("/workspace/called")
    arguments = {"sandbox_id": box.id, "generation": box.generation + 1, "exec_id": "stale-exec", "argv": ["true"]}
    stale = client.signature("sandloom.exec", arguments, owner_queue=box.route.worker_endpoint)
    refused = stale.on_error(errback).apply_async()
    with pytest.raises(StaleRoute):
        refused.get(timeout=LONG_SECONDS)
    until(lambda: "called" in [entry.name for entry in box.files.list()])


def test_a_revoked_task_ends_its_command_also_without_terminate(fleet: DirectFleet, client: Fleet) -> None:
    (box,) = boxes_on(client, "revoked", "w2")
    result = box.exec_signature(["sleep", "600"], exec_id="revoked-exec").apply_async()
    key = ExecKey("default", box.id, "revoked-exec")
    fleet.until_running(key)
    client.app.control.revoke(result.id)
    assert fleet.ended(key).status is ExecStatus.CANCELLED


class Application:
    """Somebody's own Celery application, with a worker of its own in this process."""

    def __init__(self, fleet: Fleet) -> None:
        self.app = Celery("theirs", set_as_current=False)
        fleet.add_tasks(self.app)
        self.app.conf.update(worker_hijack_root_logger=False, worker_redirect_stdouts=False)

        @self.app.task(name="theirs.join", shared=False)
        def join(records: list[dict[str, Any]]) -> str:
            return "+".join(record["stdout"].strip() for record in records)

        @self.app.task(name="theirs.size", shared=False)
        def size(record: dict[str, Any]) -> int:
            return len(record["stdout"])

        ready = threading.Event()

        def on_ready(sender: Any, **_: Any) -> None:
            if sender.app is self.app:
                ready.set()

        worker_ready.connect(on_ready)
        self._worker: Any = self.app.Worker(pool="threads", concurrency=1, quiet=True, hostname="theirs@test")
        self._thread = threading.Thread(target=self._worker.start, daemon=True)
        self._thread.start()
        assert ready.wait(LONG_SECONDS)
        # A worker marks its whole process as one in which nobody may wait for results.
        cast(Any, _state)._set_task_join_will_block(False)

    def close(self) -> None:
        self._worker.stop()
        self._thread.join(LONG_SECONDS)
        self.app.close()


@pytest.mark.filterwarnings("ignore::celery.platforms.SecurityWarning")
def test_an_application_of_somebody_else_has_the_tasks_and_may_follow_them(client: Fleet) -> None:
    box, other = boxes_on(client, "theirs", "w1", "w2")
    theirs = Application(client)
    try:
        tasks = theirs.app.tasks
        arguments = {"sandbox_id": box.id, "generation": box.generation, "exec_id": "plain-exec", "argv": ["echo", "x"]}
        record = tasks["sandloom.exec"].delay(**arguments).get(timeout=LONG_SECONDS)
        assert (record["stdout"], record["sandbox_id"]) == ("x\n", box.id)

        parts = [part.exec_signature(["echo", part.route.worker_id]) for part in (box, other)]
        joined = chord(parts, tasks["theirs.join"].s(), app=theirs.app).apply_async()
        assert joined.get(timeout=LONG_SECONDS) == "w1+w2"
        followed = chain(box.exec_signature(["echo", "four"]), tasks["theirs.size"].s(), app=theirs.app).apply_async()
        assert followed.get(timeout=LONG_SECONDS) == len("four\n")
        many = [{**arguments, "exec_id": f"group-{n}", "exec_scope": f"scope-{n}"} for n in range(2)]
        steps = [{**arguments, "exec_id": f"step-{n}", "argv": ["sh", "-c", f"echo {n} >> steps"]} for n in range(2)]
        chain(*(tasks["sandloom.exec"].s(**step) for step in steps), app=theirs.app).apply_async().get(
            timeout=LONG_SECONDS
        )
        assert box.files.read("/workspace/steps") == b"0\n1\n"
        together = group(tasks["sandloom.exec"].s(**one) for one in many)
        assert len(together.apply_async().get(timeout=LONG_SECONDS)) == 2
    finally:
        theirs.close()


def test_a_box_of_a_restarted_worker_is_found_again_and_a_released_one_is_not_brought_back(
    fleet: DirectFleet, client: Fleet
) -> None:
    (box,) = boxes_on(client, "restarted", "w2")
    box.files.write("/workspace/kept", "still here")
    generation = box.generation
    assert fleet.workers["w2"].stop(timeout_seconds=120) == 0
    fleet.workers["w2"] = fleet.start_worker("w2")
    assert box.run(["cat", "kept"]).stdout == "still here"
    assert box.generation == generation + 1
    box.release()
    with pytest.raises(StaleRoute):
        box.run(["true"])


def test_what_follows_a_command_goes_on_when_its_worker_is_gone(fleet: DirectFleet, client: Fleet) -> None:
    lost, alive = boxes_on(client, "lost", "w1", "w2")
    sleeping = [
        lost.exec_signature(["sleep", "600"], exec_id=f"lost-{name}", exec_scope=f"lost-{name}")
        for name in ("chord", "chain", "link")
    ]
    after = [
        alive.exec_signature(["sh", "-c", f"echo after >> {name}"], exec_scope=name)
        for name in ("chord", "chain", "link")
    ]
    part = alive.exec_signature(["true"], exec_scope="part")
    chorded = chord([sleeping[0], part], after[0], app=client.app).apply_async()
    chained = chain(sleeping[1], after[1], app=client.app).apply_async()
    linked = sleeping[2].set(link=after[2]).apply_async()
    for name in ("chord", "chain", "link"):
        fleet.until_running(ExecKey("default", lost.id, f"lost-{name}"))
    again = lost.exec_signature(["sleep", "600"], exec_id="lost-link", exec_scope="lost-link").apply_async()
    backend = cast(Any, client.app.backend)
    until(lambda: bool(backend.client.exists(backend.get_key_for_task(linked.id, ".joined"))))
    told = lost.exec_signature(["true"], exec_id="lost-told", exec_scope="told").apply_async()
    assert told.get(timeout=LONG_SECONDS)["status"] == "SUCCEEDED"
    # As if the worker had died after the row had its end.
    told.forget()
    fleet.start_beat(**SHORT_LEASE)
    fleet.workers["w1"].kill()
    assert again.get(timeout=LONG_SECONDS)["status"] == "WORKER_LOST"
    assert client.app.AsyncResult(told.id).get(timeout=LONG_SECONDS)["status"] == "SUCCEEDED"
    assert linked.get(timeout=LONG_SECONDS)["status"] == "WORKER_LOST"
    assert chorded.get(timeout=LONG_SECONDS)["status"] == "SUCCEEDED"
    assert chained.get(timeout=LONG_SECONDS)["status"] == "SUCCEEDED"
    fleet.workers["w1"] = fleet.start_worker("w1")
    until(lambda: "link" in [entry.name for entry in alive.files.list()])
    assert {name: alive.files.read(f"/workspace/{name}") for name in ("chord", "chain", "link")} == dict.fromkeys(
        ("chord", "chain", "link"), b"after\n"
    )
