"""A worker is emptied while clients go on: nothing is lost, and what keeps it from being empty is said."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pytest

from sandloom.errors import NoWorkerAvailable, SandboxSuspended, SandloomError
from sandloom.execs.states import ExecStatus
from sandloom.ids import ExecKey, SandboxKey
from sandloom.sandboxes.records import Route
from sandloom.sandboxes.states import SandboxStatus
from sandloom.sandboxes.staying import staying
from tests.acceptance.worker_fleet import CALL_SECONDS, CLI, SHORT_LEASE, TOKEN, WorkerFleet, until
from tests.services.account import free_port
from tests.services.process import ROOT, Process, base_environment
from tests.services.rclone import S3Server

pytestmark = [pytest.mark.bwrap, pytest.mark.slow, pytest.mark.timeout(600)]

BOXES = 30
CLIENTS = 3
LONG_SECONDS = 240


@pytest.fixture
def fleet(postgres_url: str, redis_url: str, data_dir: Path) -> Iterator[WorkerFleet]:
    fleet = WorkerFleet(postgres_url, redis_url, data_dir)
    yield fleet
    fleet.close()


class Load:
    """Clients that use each sandbox in turn, and wake what they find asleep. ``accepted``: what they were promised."""

    def __init__(self, fleet: WorkerFleet) -> None:
        self._fleet = fleet
        self._stop = threading.Event()
        self.accepted: list[ExecKey] = []
        self.faults: list[BaseException] = []
        self._threads = [threading.Thread(target=self._serve, args=(number,)) for number in range(CLIENTS)]
        for thread in self._threads:
            thread.start()

    def _serve(self, number: int) -> None:
        try:
            for name in itertools.cycle(names()[number::CLIENTS]):
                if self._stop.is_set():
                    return
                with contextlib.suppress(SandloomError):
                    self._use(name)
        except BaseException as error:
            self.faults.append(error)

    def _use(self, name: str) -> None:
        route = awake(self._fleet, name)
        script = 'echo "$1" >> /workspace/ran; sleep 0.1'
        exec_id = f"run-{len(self.accepted)}-{name}"
        key = self._fleet.start(route, ["sh", "-c", script, "-", exec_id], exec_id)
        self.accepted.append(key)
        self._fleet.ended(key, LONG_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()


def names() -> list[str]:
    return [f"box-{number}" for number in range(BOXES)]


def content(name: str) -> bytes:
    return hashlib.sha512(name.encode()).digest() * 1000


def awake(fleet: WorkerFleet, name: str) -> Route:
    route = fleet.sandbox_gateway.resolve("default", name, "scope", "coding-default", "test")
    return fleet.sandbox_gateway.connect(route.key, route.generation)


def drain(fleet: WorkerFleet, worker_id: str) -> None:
    """Ask for it, and wait until it is done."""
    fleet.services.fleet.drain(worker_id)
    until(lambda: staying(fleet.services.db, [worker_id])[worker_id].none, LONG_SECONDS)


def held_by(fleet: WorkerFleet, worker_id: str) -> dict[str, int]:
    worker = fleet.services.fleet.get(worker_id)
    assert worker is not None
    found: dict[str, int] = worker.load.get("held_by", {})
    return found


def test_a_drain_under_load_loses_nothing(postgres_url: str, redis_url: str, data_dir: Path, s3: S3Server) -> None:
    room = {"SANDBOX_WORKER_CAPACITY": str(BOXES + 2)}
    fleet = WorkerFleet(postgres_url, redis_url, data_dir, **s3.environment("drained"), **room)
    try:
        leaving = fleet.start_worker("w1")
        for name in names():
            fleet.file(awake(fleet, name), "kept", content(name))
        fleet.start_worker("w2")
        port = str(free_port())
        fleet.start_api(port).wait_for_output("Booting worker", timeout_seconds=LONG_SECONDS)
        with Load(fleet) as load:
            until(lambda: len(load.accepted) >= CLIENTS or bool(load.faults), LONG_SECONDS)
            asked = sandloom(port, "worker", "drain", "w1")
            assert "w1 is empty and may stop" in asked, asked
            assert "w2 answered in" in sandloom(port, "worker", "ping", "w2")
            assert fleet.resolve("late").worker_id == "w2"
            assert leaving.stop(timeout_seconds=LONG_SECONDS) == 0
            before = len(load.accepted)
            until(lambda: len(load.accepted) >= before + CLIENTS or bool(load.faults), LONG_SECONDS)
        assert load.faults == []

        ended = {key: fleet.ended(key).status for key in load.accepted}
        assert set(ended.values()) == {ExecStatus.SUCCEEDED}, ended
        for name in names():
            route = awake(fleet, name)
            assert route.worker_id == "w2", name
            assert fleet.read(route, "kept") == content(name)
            mine = [key.exec_id for key in load.accepted if key.sandbox_id == name]
            ran = fleet.read(route, "ran").decode().split() if mine else []
            assert sorted(ran) == sorted(mine)
        assert not list(fleet.root("w1").glob("sandboxes/*/*"))
    finally:
        fleet.close()


def sandloom(port: str, *words: str) -> str:
    environ = base_environment(SANDBOX_BASE_URL=f"http://127.0.0.1:{port}", SANDBOX_INTERNAL_TOKEN=TOKEN)
    done = subprocess.run(
        [*CLI, *words], env=environ, cwd=ROOT, capture_output=True, text=True, timeout=LONG_SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_without_a_place_to_go_a_drain_waits_and_says_why(fleet: WorkerFleet) -> None:
    fleet.start_worker(SANDBOX_MIN_FREE_BYTES=str(1 << 60)).stop(timeout_seconds=60)
    full = fleet.services.fleet.get("w1")
    assert full is not None
    assert full.load["disk"]["free_bytes"] > 0
    fleet.start_worker()
    route = fleet.ready()
    fleet.file(route, "kept", b"still here")
    fleet.services.fleet.drain("w1")
    until(lambda: held_by(fleet, "w1") == {"SANDBOX_SNAPSHOT_UNAVAILABLE": 1})
    with pytest.raises(NoWorkerAvailable):
        fleet.resolve("other")
    assert fleet.run(route, "cat kept").stdout == b"still here"

    fleet.sandbox_gateway.suspend(route.key, route.generation)
    assert awake(fleet, "box").generation == route.generation
    health = fleet.control.call(route.queue, "sandloom.health", "default", {}, timeout_seconds=CALL_SECONDS)
    assert (health["status"], health["running_sessions"]) == ("DRAINING", 1)
    fleet.services.fleet.undrain("w1")
    assert fleet.resolve("other").worker_id == "w1"
    fleet.sandbox_gateway.release(route.key, None, "test")


def test_a_full_disk_takes_no_sandboxes(fleet: WorkerFleet) -> None:
    fleet.start_worker(SANDBOX_MIN_FREE_BYTES=str(1 << 60))
    full = fleet.services.fleet.get("w1")
    assert full is not None
    assert (full.status, full.short_of) == ("DRAINING", "disk")
    with pytest.raises(NoWorkerAvailable):
        fleet.resolve()


def test_over_a_shared_root_sandboxes_move_on_and_outlive_their_worker(
    postgres_url: str, redis_url: str, data_dir: Path
) -> None:
    fleet = WorkerFleet(postgres_url, redis_url, data_dir, SANDBOX_SHARED_ROOT=str(data_dir / "shared"))
    try:
        first = shared_worker(fleet, data_dir, "w1")
        route = fleet.ready()
        fleet.run(route, "mkdir d; echo deep > d/f; chmod 700 d")
        changed = SandboxKey("default", "box")
        first.stop(timeout_seconds=60)
        shared_worker(fleet, data_dir, "w1", SANDBOX_TMPFS_BYTES=str(64 << 20)).stop(timeout_seconds=60)
        again = fleet.sandboxes.get(changed)
        assert (again.generation, again.workspace) == (route.generation + 1, "kept")
        assert again.profile_hash != route.profile_hash

        shared_worker(fleet, data_dir, "w1")
        second = shared_worker(fleet, data_dir, "w2")
        route = fleet.ready()
        drain(fleet, "w1")
        moved = awake(fleet, "box")
        assert (moved.worker_id, moved.workspace, moved.generation) == ("w2", "kept", route.generation + 1)
        assert moved.sandbox_uid != route.sandbox_uid
        assert fleet.run(moved, "cat d/f; test -O d/f && echo mine; echo more >> d/f").stdout == b"deep\nmine\n"

        fleet.services.fleet.undrain("w1")
        fleet.start_beat(**SHORT_LEASE)
        second.kill()
        fleet.lapse("w2")
        until(lambda: fleet.sandboxes.get(moved.key).status is SandboxStatus.SUSPENDED, LONG_SECONDS)
        with pytest.raises(SandboxSuspended):
            fleet.resolve()
        back = awake(fleet, "box")
        assert (back.worker_id, back.workspace, back.generation) == ("w1", "kept", moved.generation + 1)
        assert fleet.run(back, "cat d/f; test -O d/f && echo mine").stdout == b"deep\nmore\nmine\n"
    finally:
        fleet.close()


def shared_worker(fleet: WorkerFleet, directory: Path, worker_id: str, **settings: str) -> Process:
    """Each on a data directory of its own, as on hosts of their own."""
    own = directory / f"data-{worker_id}"
    own.mkdir(exist_ok=True)
    return fleet.start_worker(worker_id, wait=True, SANDBOX_DATA_DIR=str(own), **settings)
