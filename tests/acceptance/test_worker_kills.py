"""Kills at random moments of a mixed load: ``make test ARGS="-k random_moments --kills 50"``, ``--seed`` repeats one.

A seed repeats what clients ask for and when the kill comes; what the machine makes of it differs from run to run.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandloom.errors import SandboxNotFound
from sandloom.execution.spawner import proctree
from sandloom.files.channel import ByteChannel
from sandloom.sandboxes.records import Route
from sandloom.sandboxes.states import SandboxStatus
from tests.acceptance.leftovers import Leftovers
from tests.acceptance.mixed_load import Client, digest
from tests.acceptance.worker_fleet import WorkerFleet, until
from tests.services.process import NotReady, Process

pytestmark = [pytest.mark.bwrap, pytest.mark.slow, pytest.mark.root]

CLIENTS = 5
#: Not the default ones: while the worker is dead, another one on this machine may take its block.
UIDS = range(300_000, 300_128)
START_SECONDS = 90
LONGEST_LIFE_SECONDS = 3.0
TIDY = "what an earlier life left is gone"
WAYS = ("worker", "worker and spawner", "spawner and worker", "spawner, then worker", "process groups")


@pytest.fixture(params=[("strict", 0.6), ("basic", 0.4)], ids=lambda param: param[0])
def level(request: pytest.FixtureRequest) -> tuple[str, float]:
    """A level, and its share of the kills."""
    found: tuple[str, float] = request.param
    return found


@pytest.fixture
def fleet(postgres_url: str, redis_url: str, data_dir: Path, level: tuple[str, float]) -> Iterator[WorkerFleet]:
    settings = {
        "SANDBOX_ISOLATION_LEVEL": level[0],
        "SANDBOX_WORKER_EXEC_SLOTS": "12",
        "SANDBOX_BUDGET_PIDS": "200",
        "SANDBOX_BUDGET_MEMORY_BYTES": str(256 << 20),
        "SANDBOX_UID_START": str(UIDS[0]),
        "SANDBOX_UID_END": str(UIDS[-1]),
        "TMPDIR": str(data_dir / "tmp"),
    }
    fleet = WorkerFleet(postgres_url, redis_url, data_dir, **settings)
    (data_dir / "tmp").mkdir()
    yield fleet
    fleet.close()


@pytest.mark.timeout(3600)
def test_a_worker_killed_at_random_moments_leaves_nothing(
    fleet: WorkerFleet, level: tuple[str, float], pytestconfig: pytest.Config
) -> None:
    name, share = level
    seed = pytestconfig.getoption("--seed")
    seed = random.randrange(1 << 32) if seed is None else seed
    print(f"seed {seed}")
    rng = random.Random(f"{name} {seed}")
    channel = ByteChannel(fleet.services.keys.fleet, read_timeout_seconds=5)
    clients = [Client(fleet, channel, f"box-{number}", random.Random(rng.random())) for number in range(CLIENTS)]
    worker = started(fleet)
    for number in range(max(1, round(share * pytestconfig.getoption("--kills")))):
        way = rng.choice(WAYS)
        kill_under_load(worker, clients, way, rng)
        if rng.random() < 0.2:
            kill_while_it_starts(fleet, rng)
        worker = started(fleet)
        end_everything(fleet)
        found = left_behind(fleet, worker, clients)
        found += [fault for client in clients for fault in broken_promises(fleet, client)]
        assert not found, f"kill {number}, {way}, seed {seed}"
        print(f"kill {number}, {way}: nothing left after {sum(client.done.total() for client in clients)} calls")
    assert all(client.done.total() for client in clients)
    for route in routes_of(clients):
        fleet.sandbox_gateway.release(route.key, None, "test")
    assert left_behind(fleet, worker, clients) == []
    assert not list(fleet.root().glob("sandboxes/*"))
    channel.close()


def left_behind(fleet: WorkerFleet, worker: Process, clients: list[Client]) -> list[str]:
    return Leftovers(fleet, worker, routes_of(clients), fleet.root().parent / "tmp").found()


def started(fleet: WorkerFleet) -> Process:
    worker = fleet.start_worker(wait=False)
    worker.wait_for_output(TIDY, timeout_seconds=START_SECONDS)
    return worker


def kill_under_load(worker: Process, clients: list[Client], way: str, rng: random.Random) -> None:
    stop = threading.Event()
    threads = [threading.Thread(target=client.work, args=(stop,)) for client in clients]
    for thread in threads:
        thread.start()
    # Nothing is awaited: the moment is to be any.
    stop.wait(rng.uniform(0.0, LONGEST_LIFE_SECONDS))
    kill(worker, way, rng)
    stop.set()
    for thread in threads:
        thread.join()
    assert [fault for client in clients for fault in client.faults] == []


def kill(worker: Process, way: str, rng: random.Random) -> None:
    spawners = proctree.children_of(worker.pid)
    if way.startswith("spawner"):
        send(spawners)
    if way == "spawner, then worker":
        threading.Event().wait(rng.uniform(0.0, 1.0))
    if way == "process groups":
        for pid in (worker.pid, *spawners):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
    worker.kill()
    if way == "worker and spawner":
        send(spawners)


def send(pids: list[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def kill_while_it_starts(fleet: WorkerFleet, rng: random.Random) -> None:
    worker = fleet.start_worker(wait=False)
    with contextlib.suppress(NotReady):
        worker.wait_for_output("registered", timeout_seconds=rng.uniform(0.2, 4.0))
    kill(worker, "worker and spawner", rng)


def end_everything(fleet: WorkerFleet) -> None:
    """What waited goes on after the restart; it is cancelled, and every exec comes to its end."""
    row = fleet.services.fleet.get("w1")
    assert row is not None
    for found in fleet.execs.open_for("w1", row.epoch):
        fleet.exec_gateway.cancel(found.key, None)
    until(lambda: not fleet.execs.open_for("w1", row.epoch), 90)


def routes_of(clients: list[Client]) -> list[Route]:
    routes = []
    for client in clients:
        with contextlib.suppress(SandboxNotFound):
            routes.append(client.fleet.sandboxes.get(client.key))
    return routes


def broken_promises(fleet: WorkerFleet, client: Client) -> Iterator[str]:
    """Files whose content was never acknowledged nor on its way, and execs without an end."""
    yield from (f"{key} has not ended" for key in client.execs if not fleet.execs.get(key).terminal)
    route = next(iter(routes_of([client])), None)
    if route is None or route.status is SandboxStatus.RELEASED:
        client.forget()
        return
    directory = fleet.root() / f"sandboxes/t-default/s-{client.name}"
    for path, allowed in client.promised.items():
        file = directory / path.lstrip("/")
        content = digest(file.read_bytes()) if file.exists() else None
        if content not in allowed:
            yield f"{client.name}: {path} holds {content}, not one of {allowed}"
        client.promised[path] = {content}
