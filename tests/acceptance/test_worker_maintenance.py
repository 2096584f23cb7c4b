"""What nobody asks for: idle sandboxes, commands that wait too long, releases that were cut short."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import update

from sandloom.db.tables import execs
from sandloom.errors import WorkerLost
from sandloom.execs.states import ExecStatus
from sandloom.ids import SandboxKey
from sandloom.sandboxes.states import SandboxStatus
from tests.acceptance.worker_fleet import SHORT_LEASE, WorkerFleet, until

pytestmark = [pytest.mark.bwrap, pytest.mark.slow]


@pytest.fixture
def fleet(postgres_url: str, redis_url: str, data_dir: Path) -> Iterator[WorkerFleet]:
    fleet = WorkerFleet(postgres_url, redis_url, data_dir)
    yield fleet
    fleet.close()


def status(fleet: WorkerFleet, sandbox_id: str = "box") -> SandboxStatus:
    return fleet.sandboxes.get(SandboxKey("default", sandbox_id)).status


def test_an_idle_sandbox_is_released_once_by_two_beats(postgres_url: str, redis_url: str, data_dir: Path) -> None:
    fleet = WorkerFleet(postgres_url, redis_url, data_dir, SANDBOX_IDLE_TTL_SECONDS="2")
    try:
        fleet.start_worker()
        route = fleet.ready()
        fleet.file(route, "a", b"x")
        beats = [fleet.start_beat(), fleet.start_beat()]
        until(lambda: status(fleet) is SandboxStatus.RELEASED)
        assert not list(fleet.root().glob("sandboxes/*/*"))
        assert fleet.sandboxes.get(route.key).generation == route.generation
        assert all(beat.running for beat in beats)
        assert "Traceback" not in "".join(beat.output() for beat in beats)
    finally:
        fleet.close()


def test_a_command_that_waits_too_long_ends_without_a_start(postgres_url: str, redis_url: str, data_dir: Path) -> None:
    fleet = WorkerFleet(postgres_url, redis_url, data_dir)
    try:
        fleet.start_worker(SANDBOX_WORKER_EXEC_SLOTS="1")
        route = fleet.ready()
        running = fleet.shell(route, "sleep 600")
        fleet.until_running(running)
        waiting = fleet.shell(route, "touch /workspace/started")
        # As if it had waited for as long as it may.
        waited = update(execs).where(execs.c.exec_id == waiting.exec_id).values(queued_us=1)
        fleet.services.db.write(lambda connection: connection.execute(waited).close())
        fleet.start_beat()
        record = fleet.ended(waiting)
        assert (record.status, record.reason) == (ExecStatus.TIMED_OUT, "queue_timeout")
        fleet.exec_gateway.cancel(running, route.generation)
        fleet.ended(running)
        assert fleet.run(route, "ls -A /workspace").stdout == b""
    finally:
        fleet.close()


def test_a_release_that_the_worker_did_not_hear_is_finished_after_its_restart(fleet: WorkerFleet) -> None:
    worker = fleet.start_worker()
    route = fleet.ready()
    fleet.file(route, "a", b"x")
    worker.kill()
    fleet.sandboxes.begin_release(route.key, route.generation, "test", "released")
    fleet.start_worker()
    until(lambda: status(fleet) is SandboxStatus.RELEASED)
    assert not list(fleet.root().glob("sandboxes/*/*"))
    again = fleet.ready()
    assert (again.workspace, again.generation > route.generation) == ("new", True)
    assert fleet.run(again, "ls -A /workspace").stdout == b""


def test_sandboxes_of_a_worker_that_never_returns_go_on_elsewhere_as_lost(fleet: WorkerFleet) -> None:
    worker = fleet.start_worker("w1")
    route = fleet.ready()
    fleet.file(route, "a", b"x")
    fleet.start_worker("w2")
    fleet.start_beat(**SHORT_LEASE)
    worker.kill()
    fleet.lapse()

    def resolved() -> bool:
        try:
            return fleet.resolve().worker_id == "w2"
        except WorkerLost:
            return False

    until(resolved)
    again = fleet.ready()
    assert (again.workspace, again.generation > route.generation) == ("lost", True)
    assert fleet.run(again, "ls -A /workspace").stdout == b""
