"""A backup that is restored under workspaces which have gone on since."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from sandloom.errors import StaleRoute
from sandloom.execs.states import ExecStatus
from tests.acceptance.worker_fleet import CLI, WorkerFleet
from tests.services.process import ROOT, base_environment

pytestmark = [pytest.mark.bwrap, pytest.mark.slow]


@pytest.fixture
def directory(sqlite_url: str, data_dir: Path) -> Path:
    shutil.move(sqlite_url.removeprefix("sqlite:///"), data_dir / "sandloom.db")
    return data_dir


def fleet_over(directory: Path, redis_url: str) -> WorkerFleet:
    return WorkerFleet(f"sqlite:///{directory}/sandloom.db", redis_url, directory, SANDBOX_WORKER_EXEC_SLOTS="1")


@pytest.fixture
def fleet(directory: Path, redis_url: str) -> Iterator[WorkerFleet]:
    fleet = fleet_over(directory, redis_url)
    yield fleet
    fleet.close()


def test_after_the_fence_nothing_of_the_backup_runs_again(fleet: WorkerFleet, directory: Path, redis_url: str) -> None:
    fleet.start_worker()
    route = fleet.ready()
    running = fleet.shell(route, "echo running >> /workspace/log; until [ -e /workspace/go ]; do sleep 0.05; done")
    fleet.until_running(running)
    waiting = fleet.shell(route, "echo waiting >> /workspace/log")
    with closing(sqlite3.connect(directory / "sandloom.db")) as connection:
        connection.execute("VACUUM INTO ?", (str(directory / "backup.db"),))
    fleet.file(route, "go", b"")
    assert {fleet.ended(running).status, fleet.ended(waiting).status} == {ExecStatus.SUCCEEDED}
    fleet.close()

    for name in ("sandloom.db-wal", "sandloom.db-shm"):
        (directory / name).unlink(missing_ok=True)
    (directory / "backup.db").replace(directory / "sandloom.db")
    environment = base_environment(**fleet.environ, PYTHONPATH=str(ROOT))
    done = subprocess.run([*CLI, "db", "fence", "--json"], env=environment, capture_output=True, check=False)
    assert (done.returncode, json.loads(done.stdout)) == (0, {"execs": 2, "sandboxes": 1, "workers": 1}), done.stderr

    restored = fleet_over(directory, redis_url)
    try:
        restored.start_worker()
        for key in (running, waiting):
            assert restored.execs.get(key).status is ExecStatus.WORKER_LOST
        with pytest.raises(StaleRoute):
            restored.read(route, "log")
        again = restored.ready()
        assert (again.generation > route.generation, again.workspace) == (True, "kept")
        # The slot is free and the queue empty: this runs next, and whatever were to run again would have run before it.
        assert restored.run(again, "echo new >> log; cat log").stdout == b"running\nwaiting\nnew\n"
    finally:
        restored.close()
