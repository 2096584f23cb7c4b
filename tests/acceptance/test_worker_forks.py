"""Copies of sandboxes: beside their source, on another worker, and of what sleeps."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Connection, select, update

from sandloom.db.tables import loose_snapshots
from sandloom.errors import NoWorkerAvailable, SandboxBusy, SandboxExists, SandboxSuspended, ScopeMismatch, StaleRoute
from sandloom.ids import SandboxKey, new_id
from sandloom.sandboxes import repository
from sandloom.sandboxes.records import Route
from sandloom.sandboxes.states import SandboxStatus
from tests.acceptance.test_worker_templates import call
from tests.acceptance.worker_fleet import WorkerFleet, until
from tests.services.process import Process
from tests.services.rclone import S3Server
from tests.services.reflink import sharing_file_system

pytestmark = [pytest.mark.bwrap, pytest.mark.server, pytest.mark.slow]

PLANT = "mkdir d; head -c 3000000 /dev/urandom > d/f; chmod 750 d; ln -s /etc/passwd link; echo home > $HOME/h"
FOUND = "sha256sum d/f; stat -c %a d; readlink link; cat $HOME/h; test -O d/f && test -O . && echo mine"


@pytest.fixture
def sharing() -> Iterator[Path]:
    with sharing_file_system() as place:
        yield place


@pytest.fixture
def fleet(postgres_url: str, redis_url: str, data_dir: Path, s3: S3Server) -> Iterator[WorkerFleet]:
    opened = WorkerFleet(
        postgres_url,
        redis_url,
        data_dir,
        SANDBOX_MIN_FREE_BYTES="0",
        **s3.environment(new_id()),
    )
    yield opened
    opened.close()


def fork(fleet: WorkerFleet, source: Route, copy_id: str = "copy", scope: str = "scope") -> Route:
    return fleet.sandbox_gateway.fork(source.key, source.generation, copy_id, scope)


def copies_in_log(worker: Process) -> list[dict[str, int]]:
    lines = [line for line in worker.output().splitlines() if '"sandbox copied"' in line]
    return [json.loads(line[line.index("{") :]) for line in lines]


def test_a_copy_has_the_files_and_templates_and_goes_its_own_way(sharing: Path, fleet: WorkerFleet) -> None:
    worker = fleet.start_worker("w1", SANDBOX_LOCAL_ROOT=str(sharing / "root"))
    source = fleet.ready()
    digest = fleet.run(source, f"{PLANT}; sha256sum d/f").stdout or b""
    fleet.run(source, "mkdir /envs/t /envs/own; echo 42 > /envs/t/answer; echo own > /envs/own/f")
    call(fleet, source, "build", name="t", source_path="/envs/t")
    fleet.run(source, "rm -r /envs/t")
    call(fleet, source, "attach", templates=["t"])

    running = fleet.shell(source, "sleep 60")
    fleet.until_running(running)
    with pytest.raises(SandboxBusy):
        fork(fleet, source)
    fleet.exec_gateway.cancel(running, source.generation)
    fleet.ended(running)

    copy = fork(fleet, source)
    assert (copy.status, copy.workspace, copy.worker_id, copy.generation) == ("READY", "kept", "w1", 1)
    assert copy.sandbox_uid != source.sandbox_uid
    wanted = digest + b"750\n/etc/passwd\nhome\nmine\n"
    assert fleet.run(copy, FOUND).stdout == wanted
    inside = fleet.run(copy, "cat /envs/t/answer /envs/own/f; echo x > /envs/t/answer").stdout
    assert inside == b"42\nown\n"
    assert fleet.run(copy, "echo changed > d/f; touch new").exit_code == 0
    assert fleet.run(source, FOUND + "; ls").stdout == wanted + b"d\nlink\n"
    worker.wait_for_output('"sandbox copied".*\n')
    [logged] = copies_in_log(worker)
    assert (logged["bytes_copied"], logged["files_shared"]) == (0, 3)

    with pytest.raises(SandboxExists):
        fork(fleet, source)
    with pytest.raises(SandboxExists):
        fork(fleet, source, "box")
    with pytest.raises(StaleRoute):
        fleet.sandbox_gateway.fork(source.key, source.generation + 1, "other", "scope")
    fleet.sandbox_gateway.release(copy.key, copy.generation, "test")
    with pytest.raises(ScopeMismatch):
        fork(fleet, source, scope="another")
    again = fork(fleet, source)
    assert (again.generation, again.workspace) == (2, "kept")
    assert fleet.run(again, FOUND).stdout == wanted


def test_a_full_worker_and_a_sleeping_source_are_copied_through_the_object_store(fleet: WorkerFleet) -> None:
    worker = fleet.start_worker("w1", SANDBOX_WORKER_CAPACITY="1")
    gateway, source = fleet.sandbox_gateway, fleet.ready()
    digest = fleet.run(source, f"{PLANT}; sha256sum d/f").stdout or b""
    wanted = digest + b"750\n/etc/passwd\nhome\nmine\n"
    with pytest.raises(NoWorkerAvailable):
        fork(fleet, source)
    assert [route.key.sandbox_id for route in fleet.sandboxes.list("default", None, None, None, 9, 0)[0]] == ["box"]
    fleet.start_worker("w2", SANDBOX_WORKER_CAPACITY="2")
    copy = fork(fleet, source)
    assert (copy.status, copy.workspace, copy.worker_id) == ("READY", "restored", "w2")
    assert fleet.run(copy, FOUND).stdout == wanted
    assert fleet.run(source, FOUND).stdout == wanted

    assert gateway.suspend(source.key, source.generation)[1]
    worker.kill()
    fleet.lapse()
    of_sleeping = fork(fleet, source, "second")
    assert (of_sleeping.status, of_sleeping.workspace, of_sleeping.worker_id) == ("READY", "restored", "w2")
    assert fleet.run(of_sleeping, FOUND).stdout == wanted
    assert fleet.sandboxes.get(source.key).status is SandboxStatus.SUSPENDED
    with pytest.raises(NoWorkerAvailable):
        fork(fleet, source, "third")


def test_a_worker_that_dies_before_the_files_are_there_leaves_a_copy_that_says_so(fleet: WorkerFleet) -> None:
    worker = fleet.start_worker()
    source = fleet.ready()
    fleet.file(source, "kept", b"still here")
    fleet.sandboxes.hold(source.fence)
    copy = fleet.services.forks.begin(source, SandboxKey("default", "copy"), "scope", "test")
    worker.kill()
    worker = fleet.start_worker()
    found = fleet.ready("copy")
    assert (found.generation, found.workspace) == (copy.generation + 1, "lost")
    again = fleet.ready()
    assert fleet.read(again, "kept") == b"still here"
    assert fleet.read(fork(fleet, again, "next"), "kept") == b"still here"
    worker.stop()
    fleet.start_worker(SANDBOX_SUSPEND_SNAPSHOT="never")
    third = fleet.ready()
    fleet.sandbox_gateway.suspend(third.key, third.generation)
    with pytest.raises(SandboxSuspended):
        fork(fleet, third, "asleep")


def test_what_a_killed_worker_left_in_the_object_store_is_removed(fleet: WorkerFleet, s3: S3Server) -> None:
    """It dies when all of the copy is in the store, and waits for the copy's row, which somebody else has locked."""
    worker = fleet.start_worker()
    source = fleet.ready()
    fleet.file(source, "kept", b"still here")
    first = fork(fleet, source)
    fleet.sandbox_gateway.release(first.key, first.generation, "test")
    fleet.sandbox_gateway.suspend(source.key, source.generation)
    db = fleet.services.db
    arguments = {
        "sandbox_id": "box", "generation": source.generation, "copy_id": "copy", "workspace_scope_id": "scope",
    }  # fmt: skip

    def killed(connection: Connection) -> None:
        assert repository.fetch(connection, first.key, lock=True)
        fleet.services.post.send(source.queue, "sandloom.fork", "default", arguments, ttl_seconds=60)
        until(lambda: bool(stored(fleet, s3, "manifest.json")))
        worker.kill()

    db.write(killed)
    assert fleet.sandboxes.get(first.key).status is SandboxStatus.RELEASED
    tokens = db.read(lambda connection: connection.execute(select(loose_snapshots.c.snapshot)).scalars().all())
    assert tokens == [path.parent.name for path in stored(fleet, s3, "manifest.json")]
    fleet.start_worker()
    copy = fork(fleet, source)
    assert fleet.read(copy, "kept") == b"still here"
    db.write(lambda connection: connection.execute(update(loose_snapshots).values(due_us=1)).close())
    fleet.start_beat()
    until(lambda: not stored(fleet, s3, "*"))
    until(lambda: not db.read(lambda connection: connection.execute(select(loose_snapshots)).all()))
    assert fleet.read(copy, "kept") == b"still here"


def stored(fleet: WorkerFleet, s3: S3Server, name: str) -> list[Path]:
    """Objects of the copy."""
    return [path for path in s3.objects(str(fleet.settings.blobstore_bucket), name) if "/copy/" in str(path)]


def test_what_sleeps_on_a_worker_that_is_full_wakes_elsewhere(fleet: WorkerFleet) -> None:
    fleet.start_worker("w1", SANDBOX_WORKER_CAPACITY="1")
    gateway, route = fleet.sandbox_gateway, fleet.ready()
    fleet.file(route, "kept", b"still here")
    gateway.suspend(route.key, route.generation)
    fleet.ready("other")
    with pytest.raises(NoWorkerAvailable) as refused:
        gateway.resume(route.key, "test")
    assert refused.value.retry_after_seconds
    assert fleet.sandboxes.get(route.key).has_directory
    fleet.start_worker("w2")
    woken, resumed = gateway.resume(route.key, "test")
    assert (resumed, woken.worker_id, woken.workspace, woken.generation) == (True, "w2", "restored", 2)
    assert fleet.read(woken, "kept") == b"still here"
    until(lambda: len(list(fleet.root("w1").glob("sandboxes/*/*"))) == 1)
