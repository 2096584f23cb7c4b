"""Every method of ``Execs`` on both databases, with each error that its docstring names."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from sandloom.clock import MICROSECONDS
from sandloom.contracts.ports import Head
from sandloom.db import Database
from sandloom.db.tables import execs, sandboxes, usage_records, workers
from sandloom.errors import (
    ExecIdConflict,
    ExecNotFound,
    ParallelLimit,
    QueueFull,
    SandboxNotFound,
    SandboxNotReady,
    SandboxSuspended,
    ScopeBusy,
    StaleRoute,
    WorkerLost,
)  # fmt: skip
from sandloom.execs import repository
from sandloom.execs.admission import ExecPolicy
from sandloom.execs.records import ExecRequest, Outcome
from sandloom.execs.service import ENDED_SECONDS
from sandloom.execs.states import ExecStatus, Reason
from sandloom.ids import ExecKey
from tests.integration.domain.world import DONE, REFUSED, World, key, request

FULL = ExecRequest(
    "run", ("sh", "-c", "echo ü"), cwd="/workspace/a", env={"A": "1"}, timeout_seconds=7, exec_scope="tests",
    stdin=b"\x00\xff", labels={"k": "v"}, limits={"pids": 3},
)  # fmt: skip

# --- admit ---


def test_an_admitted_command_is_queued_and_its_sandbox_running(world: World):
    route = world.started()
    record, _, created = world.execs.admit(route.key, 1, FULL, task_id="task")
    assert created
    assert (record.status, record.last_seq, record.timeout_seconds, record.task_id) == ("QUEUED", 1, 7, "task")
    assert world.execs.get(record.key) == record
    assert record.request == FULL
    box = world.sandboxes.get(route.key)
    assert (box.status, box.active_execs, box.exclusive_exec_id) == ("RUNNING", 1, None)
    assert [(seq, kind, json.loads(data)) for seq, kind, data in world.events(record.key)] == [
        (1, "status", {"status": "QUEUED"})
    ]
    world.check()


def test_without_a_scope_it_takes_the_whole_sandbox(world: World):
    route = world.started()
    record = world.queued(route)
    assert world.sandboxes.get(route.key).exclusive_exec_id == "run"
    assert record.timeout_seconds == 300
    for scope in (None, "tests"):
        with pytest.raises(ScopeBusy):
            world.queued(route, "other", scope)
    world.finish(world.claim(record) or record)
    assert world.sandboxes.get(route.key).exclusive_exec_id is None
    world.queued(route, "scoped", "tests")
    with pytest.raises(ScopeBusy):
        world.queued(route, "whole")
    with pytest.raises(ScopeBusy):
        world.queued(route, "same", "tests")
    world.queued(route, "beside", "others")
    world.check()


def test_the_same_request_again_is_the_same_command_for_ever(world: World):
    route = world.started()
    first = world.running(route)
    assert world.execs.admit(route.key, 1, request()) == (first, world.sandboxes.get(route.key), False)
    world.finish(first)
    world.released(route)
    for generation in (1, 2, 99):
        record, _, created = world.execs.admit(route.key, generation, request())
        assert (record.status, created) == ("SUCCEEDED", False)
    world.resolve()
    assert world.execs.admit(route.key, 2, request())[2] is False
    assert len(world.rows(execs)) == 1
    world.check()


@pytest.mark.parametrize(
    "values",
    [
        {"argv": ("sh", "-c", "echo u")}, {"cwd": "/workspace"}, {"env": {}}, {"timeout_seconds": None},
        {"exec_scope": None}, {"stdin": None}, {"stdin": b""}, {"labels": {}}, {"limits": {}},
    ],
)  # fmt: skip
def test_the_same_id_with_another_request_is_a_conflict(world: World, values: dict[str, object]):
    route = world.started()
    world.execs.admit(route.key, 1, FULL)
    with pytest.raises(ExecIdConflict):
        world.execs.admit(route.key, 1, dataclasses.replace(FULL, **values))  # type: ignore[arg-type]
    assert len(world.rows(execs)) == 1


def test_why_a_command_is_not_admitted(world: World):
    with pytest.raises(SandboxNotFound):
        world.execs.admit(key(), 1, request())
    world.register()
    route = world.resolve()
    with pytest.raises(SandboxNotReady):
        world.queued(route)
    world.sandboxes.mark_ready(route.fence)
    with pytest.raises(StaleRoute):
        world.execs.admit(route.key, 2, request())
    world.set(workers, workers.c.worker_id == "w1", lease_expires_us=1)
    with pytest.raises(WorkerLost):
        world.queued(route)
    world.fleet.renew("w1", 1, 600, {})
    for status, error in (("SUSPENDED", SandboxSuspended), ("RELEASING", StaleRoute), ("RELEASED", StaleRoute)):
        world.set_status(route.key, status)
        with pytest.raises(error):
            world.queued(route)
    assert world.rows(execs) == []


def test_bounds_of_the_sandbox_and_of_the_workers_queue(db: Database):
    world = World(db, execs=ExecPolicy(max_parallel_execs_per_sandbox=2, max_queued_execs=3))
    route = world.started()
    for number in (1, 2):
        world.queued(route, f"run-{number}", f"scope-{number}")
    with pytest.raises(ParallelLimit):
        world.queued(route, "run-3", "scope-3")
    other = world.ready("other")
    world.queued(other, "run-3")
    with pytest.raises(QueueFull):
        world.queued(world.ready("third"), "run-4")
    claimed = world.claim(world.exec("run-1"))
    assert claimed is not None, "what runs does not wait any more"
    world.queued(world.ready("third"), "run-4")
    world.check()


# --- the life of a command ---


def test_output_events_usage_and_end(world: World):
    route = world.started()
    record = world.running(route)
    owner = (record.key, record.worker_id, record.worker_epoch)
    assert world.execs.append(*owner, 2, [("stdout", b"a\xff"), ("stderr", b"!"), ("note", b"{}")])
    assert world.exec("run").stdout == b"a\xff"
    outcome = Outcome(
        ExecStatus.FAILED, Reason.EXIT, exit_code=3, truncated=True, duration_ms=12,
        usage={"cpu_ms": 5, "max_rss_bytes": 6, "io_bytes": None, "pids_peak": 2, "oom_killed": False},
    )  # fmt: skip
    assert world.execs.finish(*owner, 5, [("stdout", b"b")], outcome)
    ended = world.exec("run")
    assert (ended.status, ended.exit_code, ended.reason, ended.truncated) == ("FAILED", 3, "exit", True)
    assert (ended.stdout, ended.stderr, ended.duration_ms) == (b"a\xffb", b"!", 12)
    assert ended.usage == outcome.usage
    assert ended.started_us is not None
    assert ended.finished_us is not None
    assert ended.queued_us <= ended.started_us <= ended.finished_us
    kinds = [kind for _, kind, _ in world.events(record.key)]
    assert kinds == ["status", "status", "stdout", "stderr", "note", "stdout", "status"]
    last = json.loads(world.events(record.key)[-1][2])
    assert (last["status"], last["exit_code"], last["usage"]["cpu_ms"]) == ("FAILED", 3, 5)
    used = world.row(usage_records)
    assert (used.cpu_ms, used.wall_ms, used.max_rss_bytes, used.io_bytes) == (5, 12, 6, 0)
    assert (used.workspace_scope_id, json.loads(used.labels)) == ("scope", {})
    box = world.sandboxes.get(route.key)
    assert (box.status, box.active_execs) == ("READY", 0)
    world.check()


@pytest.mark.parametrize("count", [0, 1, 300])
def test_a_batch_of_any_size_is_one_step(world: World, count: int):
    record = world.running(world.started())
    batch = [("stdout", bytes([n % 256]) * 100) for n in range(count)]
    assert world.execs.append(record.key, record.worker_id, record.worker_epoch, 2, batch)
    found = world.exec("run")
    assert found.last_seq == 2 + count
    assert found.stdout == b"".join(data for _, data in batch)
    world.check()


@pytest.mark.parametrize(("how", "expected"), [("cancel", b""), ("finish", b""), ("finish late", b"x")])
def test_output_of_a_command_that_ended(world: World, how: str, expected: bytes):
    record = world.queued(world.started())
    if how == "cancel":
        world.execs.cancel(record.key)
    else:
        claimed = world.claim(record)
        assert claimed is not None
        world.finish(claimed, events=[("stdout", b"x")] if how == "finish late" else [])
    assert world.exec("run").stdout == expected
    assert world.execs.get(record.key).stdout is None


def test_events_are_read_in_pages_after_a_cursor(world: World):
    record = world.running(world.started())
    world.execs.append(record.key, "w1", 1, 2, [("stdout", b"a"), ("stdout", b"b")])
    page = world.execs.events(record.key, 1, limit=2)
    assert ([e.seq for e in page.events], page.last_seq, page.terminal) == ([2, 3], 4, False)
    world.execs.finish(record.key, "w1", 1, 4, [], DONE)
    page = world.execs.events(record.key, 4)
    assert ([e.seq for e in page.events], page.last_seq, page.terminal) == ([5], 5, True)
    assert world.execs.events(record.key, 5).events == ()
    assert world.execs.events(record.key, 99).events == ()
    with pytest.raises(ExecNotFound):
        world.execs.events(ExecKey("default", "box", "none"), 0)


def test_a_page_of_events_ends_where_its_row_was(world: World, monkeypatch: pytest.MonkeyPatch):
    """A command that ends between the two looks: the page must not hold the last event and deny the end."""
    record = world.running(world.started())
    read = repository.events_after

    def look_late(*arguments: Any) -> Any:
        assert world.finish(record)
        return read(*arguments)

    monkeypatch.setattr(repository, "events_after", look_late)
    page = world.execs.events(record.key, 0)
    assert ([event.seq for event in page.events], page.last_seq, page.terminal) == ([1, 2], 2, False)


def test_list_is_newest_first(world: World):
    route = world.started()
    for number in range(3):
        world.queued(route, f"run-{number}", f"scope-{number}")
        world.set(execs, execs.c.exec_id == f"run-{number}", queued_us=number)
    page, total = world.execs.list(route.key, 2, 1)
    assert ([e.key.exec_id for e in page], total) == (["run-1", "run-0"], 3)
    with pytest.raises(SandboxNotFound):
        world.execs.list(key("none"), 10, 0)
    world.execs.admit(route.key, 1, dataclasses.replace(FULL, stdin=b"large"))
    listed = world.execs.list(route.key, 1, 0)[0][0].request
    assert listed == dataclasses.replace(FULL, stdin=None), "input may be large, and nobody lists it"


def test_get_of_nothing(world: World):
    with pytest.raises(ExecNotFound):
        world.exec("none")


def test_claim_is_over_when_the_queue_limit_is(db: Database):
    world = World(db, execs=ExecPolicy(max_queued_seconds=60))
    record = world.queued(world.started())
    world.set(execs, execs.c.exec_id == "run", queued_us=record.queued_us - 61_000_000)
    assert world.claim(record) is None
    world.set(execs, execs.c.exec_id == "run", queued_us=record.queued_us - 50_000_000)
    assert world.claim(record) is not None


# --- cancel and refuse ---


def test_cancel_ends_what_is_queued_and_marks_what_runs(world: World):
    route = world.started()
    queued, running = world.queued(route, "queued", "a"), world.running(route, "running", "b")
    result = world.execs.cancel(queued.key, 1)
    assert (result.cancelled, result.ring_worker, result.exec.status) == (True, False, "CANCELLED")
    result = world.execs.cancel(running.key)
    assert (result.cancelled, result.ring_worker, result.exec.status) == (True, True, "RUNNING")
    first_us = result.exec.cancel_us
    assert first_us is not None
    again = world.execs.cancel(running.key)
    assert (again.ring_worker, again.exec.cancel_us) == (True, first_us)
    world.finish(running)
    result = world.execs.cancel(running.key)
    assert (result.cancelled, result.ring_worker, result.exec.status) == (False, False, "SUCCEEDED")
    assert world.execs.cancel(queued.key).cancelled is False
    world.check()


def test_cancel_of_nothing_or_by_a_stale_generation(world: World):
    record = world.queued(world.started())
    with pytest.raises(ExecNotFound):
        world.execs.cancel(ExecKey("default", "box", "none"))
    with pytest.raises(StaleRoute):
        world.execs.cancel(record.key, 2)
    assert world.exec("run").status == "QUEUED"


def test_refuse_ends_a_command_that_cannot_be_started(world: World):
    record = world.queued(world.started())
    assert world.execs.refuse(record.key, "w1", 1, REFUSED)
    assert world.exec("run").error == "SANDBOX_WORKSPACE_FAILED"
    assert not world.execs.refuse(record.key, "w1", 1, REFUSED)
    assert not world.execs.refuse(ExecKey("default", "box", "none"), "w1", 1, REFUSED)
    world.check()


def test_open_for_lists_what_runs_and_then_what_waits_oldest_first(world: World):
    world.register("w2", capacity=0)
    route = world.started()
    for number in range(4):
        world.queued(route, f"run-{number}", f"scope-{number}")
        world.set(execs, execs.c.exec_id == f"run-{number}", queued_us=world.exec("run-0").queued_us - number)
    assert world.claim(world.exec("run-1")) is not None
    world.execs.cancel(world.exec("run-1").key)
    world.execs.cancel(world.exec("run-2").key)
    found = world.execs.open_for("w1", 1)
    assert [(e.key.exec_id, e.status, e.cancel_us is not None) for e in found] == [
        ("run-1", "RUNNING", True),
        ("run-3", "QUEUED", False),
        ("run-0", "QUEUED", False),
    ]
    assert [e.key.exec_id for e in world.execs.open_for("w1", 1, limit=1)] == ["run-1"]
    assert world.execs.open_for("w1", 2) == world.execs.open_for("w2", 1) == []


def test_tasks_that_ended_about_when_their_worker_did_are_found(world: World):
    route = world.started()
    for name, task_id in (("long-ago", "task-1"), ("lately", "task-2"), ("open", "task-3"), ("over-rest", None)):
        world.execs.admit(route.key, route.generation, request(name, name), task_id)
        claimed = world.claim(world.exec(name))
        assert claimed is not None
        assert name == "open" or world.finish(claimed)
    last_us = world.row(workers).lease_expires_us
    past_us = last_us - (ENDED_SECONDS + 1) * MICROSECONDS
    world.set(execs, execs.c.exec_id == "long-ago", finished_us=past_us)
    assert world.execs.ended_tasks("w1") == [(world.exec("lately").key, "task-2")]
    world.set(workers, workers.c.worker_id == "w1", lease_expires_us=last_us - MICROSECONDS)
    assert [key.exec_id for key, _ in world.execs.ended_tasks("w1")] == ["lately", "long-ago"]
    assert [key.exec_id for key, _ in world.execs.ended_tasks("w1", limit=1)] == ["lately"]
    assert world.execs.ended_tasks("w2") == []


def test_open_for_lets_tenants_and_their_sandboxes_take_turns(world: World):
    """Whatever part of a queue is read, the only command of a tenant or sandbox is near its beginning."""
    world.register()
    for box in ("a", "b"):
        route = world.ready(box, "greedy")
        for number in range(4):
            world.queued(route, f"{box}-{number}", f"scope-{number}")
    world.queued(world.ready("c", "greedy"), "c-0")
    world.queued(world.ready("d", "modest"), "d-0")
    for place, record in enumerate(sorted(world.rows(execs), key=lambda row: row.exec_id)):
        world.set(execs, execs.c.exec_id == record.exec_id, queued_us=record.queued_us + place)
    found = [e.key.exec_id for e in world.execs.open_for("w1", 1)]
    assert found == ["a-0", "d-0", "b-0", "c-0", "a-1", "b-1", "a-2", "b-2", "a-3", "b-3"]
    assert [e.key.exec_id for e in world.execs.open_for("w1", 1, limit=2)] == ["a-0", "d-0"]


def test_the_last_of_several_commands_makes_the_sandbox_ready(world: World):
    route = world.started()
    one, two = world.running(route, "one", "a"), world.running(route, "two", "b")
    world.finish(one)
    assert world.row(sandboxes).status == "RUNNING"
    world.finish(two)
    assert world.row(sandboxes).status == "READY"


def test_a_command_that_ends_during_a_release_leaves_it_releasing(world: World):
    route = world.started()
    record = world.running(route)
    world.sandboxes.begin_release(route.key, None, "tester", "released")
    world.finish(record)
    box = world.row(sandboxes)
    assert (box.status, box.active_execs, box.exclusive_exec_id) == ("RELEASING", 0, None)
    world.check()


def test_a_page_of_events_is_bounded_in_bytes_and_never_empty(world: World):
    record = world.running(world.started(), "run", "tests")
    sizes = [10, 65_536, 1, 1, 65_536, 65_536]
    assert world.execs.append(record.key, "w1", 1, 2, [("stdout", b"x" * size) for size in sizes])

    def pages(max_bytes: int, limit: int = 100) -> list[list[int]]:
        found, after = [], 2
        while events := world.execs.events(record.key, after, limit, max_bytes).events:
            found.append([event.seq for event in events])
            after = events[-1].seq
        return found

    assert pages(1) == [[3], [4], [5], [6], [7], [8]]
    assert pages(65_536) == [[3, 4], [5, 6, 7], [8]]
    assert pages(1 << 20) == [[3, 4, 5, 6, 7, 8]]
    assert pages(1 << 20, limit=4) == [[3, 4, 5, 6], [7, 8]]


def test_heads_of_several_commands_are_found_at_once(world: World):
    route = world.started()
    record, other = world.running(route, "run", "tests"), world.queued(route, "other", "other")
    gone = record.key._replace(tenant_id="acme")
    assert dict(world.execs.heads([record.key, other.key, gone])) == {
        record.key: Head(2, False),
        other.key: Head(1, False),
    }
    assert world.execs.finish(record.key, "w1", 1, 2, [], DONE)
    assert world.execs.heads([record.key]) == [(record.key, Head(3, True))]
    assert world.execs.heads([]) == []
