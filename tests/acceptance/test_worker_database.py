"""The database is late, away, or does not say whether it committed."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import make_url

from sandloom.execs.states import ExecStatus
from tests.acceptance.worker_fleet import WorkerFleet, processes_with, until
from tests.services.proxy import Proxy

pytestmark = [pytest.mark.bwrap, pytest.mark.slow]

#: What a worker writes for a command, in this order; the append again for each batch of output.
MOVES = ("claim", "append", "finish")


@pytest.fixture
def proxied(postgres_url: str, redis_url: str, data_dir: Path) -> Iterator[tuple[WorkerFleet, Proxy]]:
    """A fleet whose worker alone reaches the database through a proxy."""
    url = make_url(postgres_url)
    assert url.port is not None
    proxy = Proxy(url.port)
    fleet = WorkerFleet(postgres_url, redis_url, data_dir)
    through = url.set(host="127.0.0.1", port=proxy.port).render_as_string(hide_password=False)
    fleet.start_worker(SANDBOX_DATABASE_URL=through)
    yield fleet, proxy
    fleet.close()
    proxy.close()


def test_writes_whose_answer_is_lost_are_looked_up(proxied: tuple[WorkerFleet, Proxy]) -> None:
    fleet, proxy = proxied
    route = fleet.ready()
    for _ in range(3):
        proxy.drop_answer_to(b"EXECUTE claim_")
        key = fleet.shell(route, "echo ran >> /workspace/count; for i in 1 2 3; do echo $i; sleep 0.3; done")
        for move in MOVES:
            if move != "claim":
                proxy.drop_answer_to(f"EXECUTE {move}_".encode())
            assert proxy.dropped.wait(120), move
        fleet.ended(key)
        record = fleet.execs.get(key, output=True)
        assert (record.status, record.stdout) == (ExecStatus.SUCCEEDED, b"1\n2\n3\n"), record
        seqs = [event.seq for event in fleet.execs.events(key, 0).events]
        assert seqs == list(range(1, record.last_seq + 1))
    assert fleet.run(route, "cat /workspace/count").stdout == b"ran\n" * 3


def test_a_running_command_outlives_an_outage_of_the_database(proxied: tuple[WorkerFleet, Proxy]) -> None:
    fleet, proxy = proxied
    route = fleet.ready()
    key = fleet.shell(
        route, "for i in 1 2 3 4 5 6; do echo $i; sleep 0.5; done; until [ -e /workspace/go ]; do :; done"
    )
    until(lambda: fleet.execs.get(key).last_seq > 2)
    proxy.cut()
    (root,) = fleet.root().glob("sandboxes/*/*/workspace")
    (root / "go").touch()
    until(lambda: not processes_with("/workspace/go"))
    fleet.lapse()
    assert fleet.execs.get(key).status is ExecStatus.RUNNING
    proxy.restore()
    record = fleet.ended(key)
    assert (record.status, record.stdout) == (ExecStatus.SUCCEEDED, b"1\n2\n3\n4\n5\n6\n")
    until(lambda: bool((worker := fleet.services.fleet.get("w1")) and worker.live))
    assert fleet.run(route, "echo on").stdout == b"on\n"


def test_a_database_that_restarts_loses_no_command(private_postgres: Any, redis_url: str, data_dir: Path) -> None:
    fleet = WorkerFleet(private_postgres.new_database(), redis_url, data_dir)
    try:
        worker = fleet.start_worker()
        route = fleet.ready()
        key = fleet.shell(route, "echo before; sleep 3; echo after")
        fleet.until_running(key)
        private_postgres.stop()
        private_postgres.start()
        assert fleet.ended(key).stdout == b"before\nafter\n"
        worker.send_signal(signal.SIGTERM)
        assert worker.wait() == 0
    finally:
        fleet.close()
