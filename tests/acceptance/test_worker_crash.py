"""What is left when a worker dies, hangs, or meets another one of its name."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from sandloom.errors import NoWorkerAvailable, StaleRoute, WorkerLost
from sandloom.execs.states import ExecStatus
from sandloom.ids import ExecKey
from tests.acceptance.worker_fleet import SHORT_LEASE, WorkerFleet, processes_with, until

pytestmark = [pytest.mark.bwrap, pytest.mark.slow]


@pytest.fixture
def fleet(postgres_url: str, redis_url: str, data_dir: Path) -> Iterator[WorkerFleet]:
    fleet = WorkerFleet(postgres_url, redis_url, data_dir)
    yield fleet
    fleet.close()


def test_a_killed_worker_leaves_no_process_and_keeps_the_workspace(fleet: WorkerFleet) -> None:
    worker = fleet.start_worker()
    route = fleet.ready()
    fleet.file(route, "kept", b"still here")
    key = fleet.shell(route, "setsid sleep 4711.25 & trap '' TERM; sleep 4711.5")
    until(lambda: len(processes_with("4711.")) >= 2)

    worker.kill()
    until(lambda: not processes_with("4711."))
    fleet.start_worker()

    record = fleet.ended(key)
    assert (record.status, record.error) == (ExecStatus.WORKER_LOST, "SANDBOX_WORKER_LOST")
    with pytest.raises(StaleRoute):
        fleet.read(route, "kept")
    again = fleet.ready()
    assert (again.generation, again.workspace) == (route.generation + 1, "kept")
    assert fleet.read(again, "kept") == b"still here"


def test_commands_that_waited_for_a_killed_worker_run_once_after_its_restart(fleet: WorkerFleet) -> None:
    worker = fleet.start_worker(SANDBOX_WORKER_EXEC_SLOTS="1")
    route = fleet.ready()
    running = fleet.shell(route, "echo ran >> /workspace/first; sleep 4722.5")
    # Its row says RUNNING before it has done anything.
    until(lambda: bool(processes_with("sleep\x004722.5")))
    waiting = fleet.shell(route, "echo ran >> /workspace/second")
    worker.kill()
    fleet.start_worker()

    assert fleet.ended(running).status is ExecStatus.WORKER_LOST
    assert fleet.ended(waiting).status is ExecStatus.SUCCEEDED
    again = fleet.ready()
    assert fleet.read(again, "second") == b"ran\n"
    assert fleet.read(again, "first") == b"ran\n"


def test_a_wiped_root_is_another_workspace(fleet: WorkerFleet) -> None:
    worker = fleet.start_worker()
    route = fleet.ready()
    fleet.file(route, "kept", b"gone soon")
    worker.kill()
    until(lambda: not processes_with(str(fleet.root())))
    fleet.lapse()
    fleet.root().rename(fleet.root("elsewhere"))
    fleet.start_worker()
    again = fleet.ready()
    assert again.generation > route.generation
    assert again.workspace == "lost"
    assert fleet.run(again, "ls -A /workspace").stdout == b""


def test_a_second_worker_of_the_same_id_exits_and_changes_nothing(fleet: WorkerFleet) -> None:
    first = fleet.start_worker()
    route = fleet.ready()
    second = fleet.start_worker("w1", wait=False, SANDBOX_LOCAL_ROOT=str(fleet.root("other")))
    assert second.wait() == 2
    assert "alive elsewhere" in second.output()
    assert first.running
    assert fleet.run(route, "echo fine").stdout == b"fine\n"


def running(fleet: WorkerFleet, script: str, marker: str, processes: int) -> ExecKey:
    """A command with its processes, however often the short lease of its worker lapses before they are there."""
    while True:
        with suppress(NoWorkerAvailable, StaleRoute, WorkerLost):
            key = fleet.shell(fleet.ready(), script)
            until(lambda key=key: len(processes_with(marker)) >= processes or fleet.execs.get(key).terminal)  # type: ignore[misc]
            if not fleet.execs.get(key).terminal:
                return key


def test_a_stopped_worker_loses_its_commands_with_its_lease(fleet: WorkerFleet) -> None:
    worker = fleet.start_worker("w1", wait=True, **SHORT_LEASE)
    key = running(fleet, "setsid sleep 4733.25 & sleep 4733.5", "4733.", 2)
    worker.send_signal(signal.SIGSTOP)
    # Nobody but the spawner can do this: the worker is frozen, and nothing else acts on it.
    until(lambda: not processes_with("4733."))
    assert fleet.execs.get(key).status is ExecStatus.RUNNING
    worker.send_signal(signal.SIGCONT)
    assert fleet.ended(key).status is ExecStatus.WORKER_LOST


def test_a_worker_that_was_declared_lost_ends_itself(fleet: WorkerFleet) -> None:
    worker = fleet.start_worker("w1", wait=True, **SHORT_LEASE)
    beat = fleet.start_beat(**SHORT_LEASE)
    key = running(fleet, "sleep 4744.5", "4744.5", 1)
    worker.send_signal(signal.SIGSTOP)
    record = fleet.ended(key)
    assert record.status is ExecStatus.WORKER_LOST
    assert not processes_with("4744.5")
    worker.send_signal(signal.SIGCONT)
    assert worker.wait() == 1
    assert beat.running
