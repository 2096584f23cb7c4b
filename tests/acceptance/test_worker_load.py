"""While every slot is taken, and when the worker is asked to stop."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandloom.clock import monotonic_seconds
from sandloom.execs.states import ExecStatus
from sandloom.fleet.records import STOPPING
from tests.acceptance.worker_fleet import WorkerFleet, processes_with, until

pytestmark = [pytest.mark.bwrap, pytest.mark.slow]


@pytest.fixture
def fleet(postgres_url: str, redis_url: str, data_dir: Path) -> Iterator[WorkerFleet]:
    fleet = WorkerFleet(postgres_url, redis_url, data_dir)
    yield fleet
    fleet.close()


def test_cancels_and_file_calls_act_while_every_slot_sleeps(fleet: WorkerFleet) -> None:
    fleet.start_worker(SANDBOX_WORKER_EXEC_SLOTS="2")
    route = fleet.ready()
    fleet.file(route, "a", b"text")
    sleeping = [fleet.shell(route, "sleep 600") for _ in range(2)]
    for key in sleeping:
        fleet.until_running(key)
    waiting = [fleet.shell(route, "echo late") for _ in range(4)]

    assert fleet.read(route, "a") == b"text"
    assert fleet.execs.get(waiting[0]).status is ExecStatus.QUEUED
    fleet.exec_gateway.cancel(waiting[0], route.generation)
    assert fleet.ended(waiting[0]).status is ExecStatus.CANCELLED

    begin = monotonic_seconds()
    fleet.exec_gateway.cancel(sleeping[0], route.generation)
    assert fleet.ended(sleeping[0]).status is ExecStatus.CANCELLED
    # The sweep would take seconds, the command itself ten minutes.
    assert monotonic_seconds() - begin < 60
    assert [fleet.ended(key).stdout for key in waiting[1:]] == [b"late\n"] * 3
    assert fleet.execs.get(sleeping[1]).status is ExecStatus.RUNNING


def test_sandboxes_take_turns(fleet: WorkerFleet) -> None:
    fleet.start_worker(SANDBOX_WORKER_EXEC_SLOTS="1")
    greedy, modest = fleet.ready("greedy"), fleet.ready("modest")
    gate = fleet.shell(greedy, "until [ -e /workspace/go ]; do sleep 0.02; done")
    fleet.until_running(gate)
    many = [fleet.shell(greedy, "true") for _ in range(8)]
    one = fleet.shell(modest, "true")
    # Every doorbell was heard once the sweep, or the consumer, has put it into the lane; the first turn is the gate's.
    fleet.file(greedy, "go", b"")
    ends = {key: fleet.ended(key).finished_us or 0 for key in (*many, one)}
    assert sorted(ends, key=lambda key: ends[key]).index(one) <= 2


def test_release_ends_what_runs_and_what_waits(fleet: WorkerFleet) -> None:
    fleet.start_worker(SANDBOX_WORKER_EXEC_SLOTS="1")
    route = fleet.ready()
    running = fleet.shell(route, "setsid sleep 4755.25 & sleep 4755.5")
    until(lambda: len(processes_with("4755.")) >= 2)
    waiting = fleet.shell(route, "true")
    fleet.sandbox_gateway.release(route.key, route.generation, "test")
    assert not processes_with("4755.")
    assert fleet.ended(running).status is ExecStatus.CANCELLED
    assert fleet.ended(waiting).status is ExecStatus.CANCELLED
    assert not list(fleet.root().glob("sandboxes/*/*"))


def test_term_lets_commands_finish(fleet: WorkerFleet) -> None:
    worker = fleet.start_worker()
    route = fleet.ready()
    key = fleet.shell(route, "sleep 3; echo done")
    fleet.until_running(key)
    worker.send_signal(signal.SIGTERM)
    assert worker.wait() == 0
    record = fleet.execs.get(key, output=True)
    assert (record.status, record.stdout) == (ExecStatus.SUCCEEDED, b"done\n")
    assert fleet.services.fleet.get("w1").status.value == "STOPPED"  # type: ignore[union-attr]


def test_a_second_term_ends_commands_and_their_records_say_so(fleet: WorkerFleet) -> None:
    worker = fleet.start_worker()
    route = fleet.ready()
    key = fleet.shell(route, "sleep 4766.5")
    fleet.until_running(key)
    worker.send_signal(signal.SIGTERM)
    # Two signals that meet are one.
    until(lambda: getattr(fleet.services.fleet.get("w1"), "short_of", None) == STOPPING)
    worker.send_signal(signal.SIGTERM)
    assert worker.wait() == 0
    record = fleet.execs.get(key)
    assert (record.status, record.reason) == (ExecStatus.WORKER_LOST, "worker_lost")
    assert record.detail
    assert not processes_with("4766.5")
