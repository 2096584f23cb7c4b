"""Sandboxes sleep and wake: with their files, without a slot, through kills of their worker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sandloom.errors import (
    DormantWorkspaceUnavailable,
    NoWorkerAvailable,
    SandboxSuspended,
    StaleGeneration,
    SuspendBusy,
)
from sandloom.ids import SandboxKey
from sandloom.sandboxes.states import SandboxStatus
from tests.acceptance.worker_fleet import WorkerFleet, processes_with, until

pytestmark = [pytest.mark.bwrap, pytest.mark.slow]


@pytest.fixture
def fleet(postgres_url: str, redis_url: str, data_dir: Path) -> Iterator[WorkerFleet]:
    fleet = WorkerFleet(postgres_url, redis_url, data_dir)
    yield fleet
    fleet.close()


def status(fleet: WorkerFleet, sandbox_id: str = "box") -> SandboxStatus:
    return fleet.sandboxes.get(SandboxKey("default", sandbox_id)).status


def test_it_sleeps_with_its_files_and_wakes_where_it_was(fleet: WorkerFleet) -> None:
    fleet.start_worker(SANDBOX_WORKER_CAPACITY="1")
    gateway, route = fleet.sandbox_gateway, fleet.ready()
    fleet.file(route, "kept", b"still here")
    running = fleet.shell(route, "setsid sleep 4733.5 & sleep 4733.25")
    fleet.until_running(running)
    with pytest.raises(SuspendBusy):
        gateway.suspend(route.key, route.generation)
    fleet.exec_gateway.cancel(running, route.generation)
    fleet.ended(running)
    with pytest.raises(StaleGeneration):
        gateway.suspend(route.key, route.generation + 1)

    assert gateway.suspend(route.key, route.generation)[1] is True
    assert gateway.suspend(route.key, route.generation)[1] is False
    assert not processes_with("4733.")
    with pytest.raises(SandboxSuspended):
        fleet.shell(route, "true")
    with pytest.raises(SandboxSuspended):
        gateway.connect(route.key, route.generation)

    other = fleet.ready("other")  # the only slot was given back
    with pytest.raises(NoWorkerAvailable):
        gateway.resume(route.key, "test")
    assert status(fleet) is SandboxStatus.SUSPENDED
    gateway.release(other.key, other.generation, "test")

    woken, resumed = gateway.resume(route.key, "test")
    assert (resumed, woken.status, woken.generation, woken.workspace) == (True, "READY", route.generation, "kept")
    assert gateway.resume(route.key, "test")[1] is False
    assert fleet.read(woken, "kept") == b"still here"
    assert fleet.run(woken, "cat kept; echo more >> kept").stdout == b"still here"

    gateway.suspend(route.key, route.generation)
    again = gateway.resolve("default", "box", "scope", "coding-default", "test")
    assert (again.status, again.generation) == ("READY", route.generation)
    gateway.suspend(route.key, route.generation)
    assert gateway.release(route.key, route.generation, "test").status == "RELEASED"
    assert not list(fleet.root().glob("sandboxes/*/*"))


def test_kills_in_the_middle_leave_a_sandbox_that_goes_on(fleet: WorkerFleet) -> None:
    worker = fleet.start_worker()
    route = fleet.ready()
    fleet.file(route, "kept", b"still here")
    assert fleet.services.suspensions.begin(route.fence)
    worker.kill()
    worker = fleet.start_worker()
    again = fleet.ready()
    assert (again.generation, again.workspace) == (route.generation + 1, "kept")
    assert fleet.read(again, "kept") == b"still here"

    fleet.sandbox_gateway.suspend(again.key, again.generation)
    fleet.services.suspensions.begin_resume(again.key, "test")
    worker.kill()
    worker = fleet.start_worker()
    third = fleet.ready()
    assert (third.generation, third.workspace) == (again.generation + 1, "kept")
    assert fleet.read(third, "kept") == b"still here"

    fleet.sandbox_gateway.suspend(third.key, third.generation)
    worker.kill()
    until(lambda: not fleet.lease_lives())
    with pytest.raises(DormantWorkspaceUnavailable):
        fleet.sandbox_gateway.resume(third.key, "test")
    fleet.start_worker()
    woken, _ = fleet.sandbox_gateway.resume(third.key, "test")
    assert (woken.generation, woken.workspace) == (third.generation + 1, "kept")
    assert fleet.read(woken, "kept") == b"still here"


def test_idle_sandboxes_are_put_to_sleep_and_in_the_end_released(
    postgres_url: str, redis_url: str, data_dir: Path
) -> None:
    fleet = WorkerFleet(
        postgres_url, redis_url, data_dir, SANDBOX_IDLE_TTL_SECONDS="2", SANDBOX_IDLE_ACTION="suspend",
        SANDBOX_SUSPENDED_RETENTION_SECONDS="5",
    )  # fmt: skip
    try:
        fleet.start_worker()
        route = fleet.ready()
        fleet.file(route, "a", b"x")
        fleet.start_beat()
        until(lambda: status(fleet) is SandboxStatus.SUSPENDED, 60)
        assert list(fleet.root().glob("sandboxes/*/*"))
        until(lambda: status(fleet) is SandboxStatus.RELEASED, 60)
        assert not list(fleet.root().glob("sandboxes/*/*"))
    finally:
        fleet.close()
