"""Sandboxes sleep and wake: with their files, without a slot, through kills of their worker."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import update

from sandloom.db.tables import sandboxes
from sandloom.errors import (
    DigestMismatch,
    DormantWorkspaceUnavailable,
    NoWorkerAvailable,
    ObjectStoreUnavailable,
    SandboxSuspended,
    SnapshotUnavailable,
    StaleGeneration,
    SuspendBusy,
)
from sandloom.ids import SandboxKey
from sandloom.sandboxes.states import SandboxStatus
from tests.acceptance.worker_fleet import SHORT_LEASE, WorkerFleet, processes_with, until
from tests.services.rclone import S3Server

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
    fleet.lapse()
    with pytest.raises(DormantWorkspaceUnavailable):
        fleet.sandbox_gateway.resume(third.key, "test")
    fleet.start_worker()
    woken, _ = fleet.sandbox_gateway.resume(third.key, "test")
    assert (woken.generation, woken.workspace) == (third.generation + 1, "kept")
    assert fleet.read(woken, "kept") == b"still here"


def test_idle_sandboxes_are_put_to_sleep_and_in_the_end_released(
    postgres_url: str, redis_url: str, data_dir: Path
) -> None:
    fleet = WorkerFleet(postgres_url, redis_url, data_dir, SANDBOX_IDLE_TTL_SECONDS="2", SANDBOX_IDLE_ACTION="suspend")
    try:
        fleet.start_worker()
        route = fleet.ready()
        fleet.file(route, "a", b"x")
        fleet.start_beat()
        until(lambda: status(fleet) is SandboxStatus.SUSPENDED)
        assert list(fleet.root().glob("sandboxes/*/*"))
        # As if it had slept for as long as it may.
        slept = update(sandboxes).values(status_us=1, look_us=0)
        fleet.services.db.write(lambda connection: connection.execute(slept).close())
        until(lambda: status(fleet) is SandboxStatus.RELEASED)
        assert not list(fleet.root().glob("sandboxes/*/*"))
    finally:
        fleet.close()


def test_it_is_restored_elsewhere_when_its_worker_does_not_return(
    postgres_url: str, redis_url: str, data_dir: Path, s3: S3Server
) -> None:
    fleet = WorkerFleet(postgres_url, redis_url, data_dir, **s3.environment("elsewhere"))
    try:
        worker = fleet.start_worker()
        gateway, route = fleet.sandbox_gateway, fleet.ready()
        fleet.run(route, "mkdir d; echo deep > d/f; ln -s d/f l; chmod 700 d")
        assert gateway.suspend(route.key, route.generation)[1]
        worker.kill()
        fleet.lapse()
        second = fleet.start_worker("w2")
        (archive,) = s3.objects("elsewhere", "workspace.tar.zst")
        whole = archive.read_bytes()
        archive.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        with pytest.raises(DigestMismatch):
            gateway.resume(route.key, "test")
        assert status(fleet) is SandboxStatus.SUSPENDED
        assert not list(fleet.root("w2").glob("sandboxes/*/*"))

        archive.write_bytes(whole)
        woken, resumed = gateway.resume(route.key, "test")
        assert (resumed, woken.worker_id, woken.workspace, woken.status) == (True, "w2", "restored", "READY")
        assert woken.generation > route.generation
        assert fleet.run(woken, "cat l; stat -c %a d; test -O d/f && echo mine").stdout == b"deep\n700\nmine\n"

        gateway.suspend(woken.key, woken.generation)
        second.stop()
        second = fleet.start_worker("w2", wait=False, **SHORT_LEASE)
        fleet.start_worker("w1")
        second.wait_for_output("worker started")
        until(lambda: not list(fleet.root("w1").glob("sandboxes/*/*")))
        # A worker that lives on after its lease had lapsed finds out what went elsewhere.
        assert list(fleet.root("w2").glob("sandboxes/*/*"))
        second.send_signal(signal.SIGSTOP)
        until(lambda: not fleet.lease_lives("w2"))
        assert gateway.resume(route.key, "test")[0].worker_id == "w1"
        second.send_signal(signal.SIGCONT)
        until(lambda: not list(fleet.root("w2").glob("sandboxes/*/*")))
        until(lambda: fleet.lease_lives("w2"))
        fleet.start_beat()
        until(lambda: not s3.objects("elsewhere", "manifest.json"))
    finally:
        fleet.close()


def test_without_the_object_store_it_sleeps_or_stays_as_the_policy_says(
    postgres_url: str, redis_url: str, data_dir: Path, s3: S3Server
) -> None:
    down = {**s3.environment("down", "http://127.0.0.1:9"), "SANDBOX_SUSPEND_SNAPSHOT": "always"}
    fleet = WorkerFleet(postgres_url, redis_url, data_dir)
    try:
        gateway = fleet.sandbox_gateway
        worker = fleet.start_worker("w1", wait=True, **down)
        route = fleet.ready()
        with pytest.raises(ObjectStoreUnavailable):
            gateway.suspend(route.key, route.generation)
        assert status(fleet) is SandboxStatus.READY
        worker.stop()
        worker = fleet.start_worker(SANDBOX_SUSPEND_SNAPSHOT="always")
        route = fleet.ready()
        with pytest.raises(SnapshotUnavailable):
            gateway.suspend(route.key, route.generation)
        worker.stop()
        fleet.start_worker("w1", wait=True, **{**down, "SANDBOX_SUSPEND_SNAPSHOT": "auto"})
        route = fleet.ready()
        assert gateway.suspend(route.key, route.generation)[1]
        assert gateway.resume(route.key, "test")[0].workspace == "kept"
    finally:
        fleet.close()


def test_copies_are_dropped_when_the_disk_is_full_and_never_the_only_one(
    postgres_url: str, redis_url: str, data_dir: Path, s3: S3Server
) -> None:
    fleet = WorkerFleet(postgres_url, redis_url, data_dir)
    try:
        gateway = fleet.sandbox_gateway
        worker = fleet.start_worker()
        only = fleet.ready("only")
        gateway.suspend(only.key, only.generation)
        worker.stop()
        worker = fleet.start_worker("w1", wait=True, **s3.environment("full"))
        route = fleet.ready()
        fleet.file(route, "kept", b"still here")
        gateway.suspend(route.key, route.generation)
        worker.stop()
        worker = fleet.start_worker("w1", wait=True, **s3.environment("full"), SANDBOX_MIN_FREE_BYTES=str(1 << 60))
        until(lambda: not fleet.sandboxes.get(route.key).has_directory)
        until(lambda: len(list(fleet.root().glob("sandboxes/*/*"))) == 1)
        assert fleet.sandboxes.get(only.key).has_directory
        with pytest.raises(NoWorkerAvailable):
            gateway.resume(route.key, "test")
        assert gateway.resume(only.key, "test")[0].workspace == "kept"
        worker.stop()
        fleet.start_worker("w1", wait=True, **s3.environment("full"))
        woken, _ = gateway.resume(route.key, "test")
        assert (woken.worker_id, woken.workspace) == ("w1", "restored")
        assert fleet.read(woken, "kept") == b"still here"
    finally:
        fleet.close()
