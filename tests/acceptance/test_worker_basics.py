"""A worker process over PostgreSQL and Redis does what it is for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sandloom.errors import FileMissing, StaleRoute
from sandloom.execs.states import ExecStatus
from sandloom.ids import ExecKey
from sandloom.sandboxes.states import SandboxStatus
from tests.acceptance.worker_fleet import WorkerFleet, until

pytestmark = [pytest.mark.bwrap, pytest.mark.slow]


@pytest.fixture
def fleet(postgres_url: str, redis_url: str, data_dir: Path) -> Iterator[WorkerFleet]:
    fleet = WorkerFleet(postgres_url, redis_url, data_dir)
    yield fleet
    fleet.close()


def test_a_sandbox_lives_from_resolve_to_release(fleet: WorkerFleet) -> None:
    fleet.start_worker()
    route = fleet.ready()
    assert (route.status, route.workspace) == (SandboxStatus.READY, "new")

    record = fleet.run(route, "echo out; echo err >&2; echo kept > /workspace/kept; exit 3")
    assert (record.status, record.exit_code) == (ExecStatus.FAILED, 3)
    assert (record.stdout, record.stderr) == (b"out\n", b"err\n")

    fleet.file(route, "given", b"from outside")
    assert fleet.run(route, "cat /workspace/given").stdout == b"from outside"
    assert fleet.read(route, "kept") == b"kept\n"
    with pytest.raises(FileMissing):
        fleet.read(route, "missing")

    released = fleet.sandbox_gateway.release(route.key, route.generation, "test")
    assert released.status is SandboxStatus.RELEASED
    assert not list(fleet.root().glob("sandboxes/*/*"))
    with pytest.raises(StaleRoute):
        fleet.read(route, "kept")


def test_events_are_dense_and_end_with_the_terminal_status(fleet: WorkerFleet) -> None:
    fleet.start_worker()
    route = fleet.ready()
    key = fleet.shell(route, "for i in 1 2 3 4; do echo $i; until [ -e $i ]; do sleep 0.05; done; done")
    # Slow output arrives in pieces, not all at the end.
    for number in range(1, 5):
        until(lambda number=number: b"%d\n" % number in pieces(fleet, key))  # type: ignore[misc]
        fleet.file(route, str(number), b"")
    record = fleet.ended(key)
    page = fleet.execs.events(key, 0)
    assert [event.seq for event in page.events] == list(range(1, record.last_seq + 1))
    assert [event.kind for event in page.events if event.kind == "status"] == ["status"] * 3
    assert page.events[-1].kind == "status"
    assert b"SUCCEEDED" in page.events[-1].data
    assert b"".join(event.data for event in page.events if event.kind == "stdout") == b"1\n2\n3\n4\n"


def pieces(fleet: WorkerFleet, key: ExecKey) -> list[bytes]:
    return [event.data for event in fleet.execs.events(key, 0).events if event.kind == "stdout"]
