"""The faults. Each strikes once when it is called, and says what it struck; AssertionError: the product did not do what
it must after it."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

from sandloom.execution.spawner import proctree
from sandloom.sandboxes.staying import staying
from tests.acceptance.test_worker_kills import WAYS, kill, send
from tests.acceptance.worker_fleet import until
from tests.chaos.fleet import EXIT_SECONDS, START_SECONDS, ChaosFleet, Member, eventually
from tests.services.process import NotReady, Process

Fault = Callable[[ChaosFleet, random.Random], str]

#: Writes whose answer gets lost, and whose they are.
WRITES_OF_WORKERS = ("EXECUTE claim_", "EXECUTE append_", "EXECUTE finish_", "COMMIT")
WRITES_OF_APIS = ("EXECUTE admit_", "EXECUTE admit_", "COMMIT")
_NEXT_WRITE_SECONDS = 15.0
_MOMENT_SECONDS = 1.0
#: A drain is not awaited for longer: what is never quiet holds it.
_DRAIN_SECONDS = 40.0


def api_killed(fleet: ChaosFleet, rng: random.Random) -> str:
    api = rng.choice(fleet.apis)
    with suppress(ProcessLookupError):
        os.killpg(api.process.pid, signal.SIGKILL)
    return api.name


def beat_killed(fleet: ChaosFleet, rng: random.Random) -> str:
    beat = rng.choice(fleet.beats)
    beat.process.send_signal(signal.SIGKILL)
    return beat.name


def worker_killed(fleet: ChaosFleet, rng: random.Random) -> str:
    with _one_worker(fleet, rng) as (name, worker):
        way = rng.choice(WAYS)
        kill(worker.process, way, rng)
        _until_started(worker)
    return f"{name}: {way}"


def spawner_killed(fleet: ChaosFleet, rng: random.Random) -> str:
    with _one_worker(fleet, rng) as (name, worker):
        children = proctree.children_of(worker.process.pid)
        send(children)
    return f"{name}: {len(children)} processes"


def redis_emptied(fleet: ChaosFleet, _: random.Random) -> str:
    fleet.servers.redis.restart(empty=True)
    return ""


def rabbitmq_emptied(fleet: ChaosFleet, _: random.Random) -> str:
    assert fleet.servers.broker is not None
    fleet.servers.broker.restart(empty=True)
    return ""


def postgres_restarted(fleet: ChaosFleet, rng: random.Random) -> str:
    crash = rng.random() < 0.5
    fleet.servers.postgres.kill() if crash else fleet.servers.postgres.stop()
    fleet.servers.postgres.start()
    return "after a crash" if crash else "in order"


def answer_dropped(fleet: ChaosFleet, rng: random.Random) -> str:
    """Until one was."""
    while True:
        by_api = rng.random() < 0.4
        member = rng.choice(fleet.apis if by_api else list(fleet.workers.values()))
        pattern = rng.choice(WRITES_OF_APIS if by_api else WRITES_OF_WORKERS)
        member.proxy.drop_answer_to(pattern.encode())
        if member.proxy.dropped.wait(_NEXT_WRITE_SECONDS):
            return f"{member.name}: {pattern}"


def worker_cut_off(fleet: ChaosFleet, rng: random.Random) -> str:
    """For longer than its lease and fence; when the database is back it finds that it was declared lost."""
    with _one_worker(fleet, rng) as (name, worker):
        epoch, process = fleet.epoch(name), worker.process
        silent = rng.random() < 0.5
        worker.proxy.freeze() if silent else worker.proxy.cut()
        try:
            _until_over(fleet, name, epoch)
        finally:
            if rng.random() < 0.5:
                worker.proxy.reset_connections()
            # Otherwise what was on its way arrives now, long after its time.
            worker.proxy.thaw()
            worker.proxy.restore()
        _must_end(process, name)
        _until_started(worker)
    return f"{name}: {'nothing passes' if silent else 'refused'}"


def worker_stopped(fleet: ChaosFleet, rng: random.Random) -> str:
    """For longer than its lease and fence; when it goes on it finds that it was declared lost."""
    with _one_worker(fleet, rng) as (name, worker):
        with _stopped(fleet, name) as process:
            pass
        _must_end(process, name)
        _until_started(worker)
    return name


def worker_replaced(fleet: ChaosFleet, rng: random.Random) -> str:
    """The same, and a worker of its name is at work on another disk by then."""
    with _one_worker(fleet, rng) as (name, worker):
        with _stopped(fleet, name) as process:
            fleet.new_disk(name)
            worker.replace()
            _until_started(worker)
        _must_end(process, name)
        _until_started(worker)
    return name


def worker_drained(fleet: ChaosFleet, rng: random.Random) -> str:
    """Emptied while it is used and while others strike; then it takes sandboxes again."""
    name = rng.choice(sorted(fleet.workers))

    def staying_there() -> int:
        found = staying(fleet.services.db, [name])[name]
        return found.running + found.quiet + found.asleep

    eventually(lambda: bool(rng.choice(fleet.clients).drain_worker(name)))
    try:
        with suppress(AssertionError):
            eventually(lambda: staying_there() == 0, _DRAIN_SECONDS)
    finally:
        eventually(lambda: bool(rng.choice(fleet.clients).undrain_worker(name)))
    return name


#: What is over in a moment, and what takes as long as a lease and a fence.
QUICK: dict[str, Fault] = {
    "API killed": api_killed,
    "worker killed": worker_killed,
    "spawner killed": spawner_killed,
    "beat killed": beat_killed,
    "Redis emptied": redis_emptied,
    "PostgreSQL restarted": postgres_restarted,
    "commit answer dropped": answer_dropped,
}
LONG: dict[str, Fault] = {
    "worker cut off": worker_cut_off,
    "worker stopped": worker_stopped,
    "worker replaced": worker_replaced,
}
#: And what leaves a worker to the other strikes.
BESIDE: dict[str, Fault] = {"worker drained": worker_drained}
OF_RABBITMQ: dict[str, Fault] = {"RabbitMQ emptied": rabbitmq_emptied}


@contextmanager
def _one_worker(fleet: ChaosFleet, rng: random.Random) -> Iterator[tuple[str, Member]]:
    """One that no other strike is at work on."""
    names = rng.sample(sorted(fleet.workers), len(fleet.workers))
    with ExitStack() as held:
        free = [name for name in names if fleet.untouched[name].acquire(blocking=False)]
        for name in free[1:]:
            fleet.untouched[name].release()
        if not free:
            fleet.untouched[names[0]].acquire()
        chosen = (free or names)[0]
        held.callback(fleet.untouched[chosen].release)
        yield chosen, fleet.workers[chosen]


@contextmanager
def _stopped(fleet: ChaosFleet, name: str) -> Iterator[Process]:
    """Inside, the process is declared lost and stands still."""
    epoch, process = fleet.epoch(name), fleet.workers[name].process
    process.send_signal(signal.SIGSTOP)
    try:
        _until_over(fleet, name, epoch)
        yield process
    finally:
        process.send_signal(signal.SIGCONT)


def _until_over(fleet: ChaosFleet, name: str, epoch: int) -> None:
    """And a moment longer, in which a command that outlived its record shows itself."""
    eventually(lambda: fleet.is_over(name, epoch))
    time.sleep(_MOMENT_SECONDS)


def _must_end(process: Process, name: str) -> None:
    try:
        process.wait(EXIT_SECONDS)
    except NotReady as error:
        raise AssertionError(f"{name} was declared lost, and goes on") from error


def _until_started(worker: Member) -> None:
    """Its newest life, whichever that is: another strike may have ended the one before."""

    def started() -> bool:
        return worker.process.running and "worker started" in worker.process.output()

    until(started, START_SECONDS)
