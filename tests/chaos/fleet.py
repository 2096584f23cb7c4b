"""The fleet that is hurt: two API replicas, two workers, two beats and an object store; each process has a way of its
own to the database, and is started again whenever it ends."""

from __future__ import annotations

import contextlib
import itertools
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import make_url

from sandloom import Client
from sandloom.errors import SandloomError
from sandloom.fleet.records import WorkerStatus
from sandloom.ids import new_id
from tests.acceptance.worker_fleet import CLI, SHORT_LEASE, WorkerFleet, until
from tests.services.account import free_port
from tests.services.postgres import PostgresServer
from tests.services.process import ROOT, Process, base_environment
from tests.services.proxy import Proxy
from tests.services.rabbitmq import RabbitServer
from tests.services.rclone import S3Server
from tests.services.redis import RedisServer

SETTINGS = {
    **SHORT_LEASE,
    "SANDBOX_WORKER_EXEC_SLOTS": "8",
    "SANDBOX_WORKER_CAPACITY": "60",
    # No workspace is given up while its worker may return.
    "SANDBOX_ORPHAN_RELEASE_GRACE_SECONDS": "600",
    "SANDBOX_UID_START": "320000",
    "SANDBOX_UID_END": "329999",
}
TOKEN = "a-token-of-the-test"
#: On a machine that others use, and while a broker of this machine starts, too.
START_SECONDS = 600
#: Longer than any wait in the product that ends with an exit.
EXIT_SECONDS = 90
_FOREVER_SECONDS = 1e6
_PAUSE_SECONDS = 0.3


@dataclass(frozen=True)
class Servers:
    """``broker`` is None where Redis is the broker too."""

    postgres: PostgresServer
    redis: RedisServer
    s3: S3Server
    broker: RabbitServer | None = None

    def __iter__(self) -> Iterator[PostgresServer | RedisServer | S3Server | RabbitServer]:
        return iter([self.postgres, self.redis, self.s3, *([] if self.broker is None else [self.broker])])


class Member:
    """One process of the fleet. ``process`` is its newest life; ``proxy`` its way to the database."""

    def __init__(self, name: str, proxy: Proxy, launch: Callable[[], Process]) -> None:
        self.name = name
        self.proxy = proxy
        self._launch = launch
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self.process = launch()
        self._be_kept()

    @property
    def started(self) -> bool:
        """Whether a worker's newest life has begun its work; one that found a server away is followed by another."""
        return self.process.running and "worker started" in self.process.output()

    def replace(self) -> Process:
        """Start the next life beside the present one, which is returned and nobody's any more."""
        with self._lock:
            before, self.process = self.process, self._launch()
        self._be_kept()
        return before

    def close(self) -> None:
        self._closing.set()
        with self._lock:
            self.process.send_signal(signal.SIGCONT)
            self.process.send_signal(signal.SIGTERM)

    def _be_kept(self) -> None:
        threading.Thread(target=self._keep, args=(self.process,), name=f"keeper of {self.name}", daemon=True).start()

    def _keep(self, process: Process) -> None:
        """Until it is replaced."""
        while True:
            process.wait(_FOREVER_SECONDS)
            if self._closing.wait(_PAUSE_SECONDS):
                return
            with self._lock:
                if self.process is not process or self._closing.is_set():
                    return
                process = self.process = self._launch()


class ChaosFleet(WorkerFleet):
    """``tree`` holds the code that the processes run. Workers are named w1 and w2."""

    def __init__(self, servers: Servers, directory: Path, tree: Path = ROOT) -> None:
        self.servers = servers
        self.tree = tree
        self.directory = directory
        self._disks = {"w1": 1, "w2": 1}
        self._lives = itertools.count(1)
        (directory / "logs").mkdir()
        self.bucket = servers.s3.files / new_id()
        settings = SETTINGS | servers.s3.environment(self.bucket.name)
        if servers.broker is not None:
            settings["SANDBOX_BROKER_URL"] = servers.broker.new_url()
        super().__init__(servers.postgres.new_database(), servers.redis.new_url(), directory, **settings)
        self.ports = [free_port(), free_port()]
        self.workers = {name: self._member(name, self._worker(name)) for name in self._disks}
        self.apis = [
            self._member(f"api-{port}", (["api"], {"SANDBOX_HOST": "127.0.0.1", "SANDBOX_PORT": str(port)}))
            for port in self.ports
        ]
        self.beats = [self._member(name, (["beat"], {})) for name in ("beat-1", "beat-2")]
        #: A worker that one strike is at work on is left alone by the others.
        self.untouched = {name: threading.Lock() for name in self.workers}
        self.clients = [Client(f"http://127.0.0.1:{port}", TOKEN, timeout_seconds=30) for port in self.ports]

    @property
    def members(self) -> list[Member]:
        return [*self.workers.values(), *self.apis, *self.beats]

    def wait_started(self) -> None:
        for worker in self.workers.values():
            until(lambda worker=worker: worker.started, START_SECONDS)  # type: ignore[misc]
        for client in self.clients:
            eventually(lambda client=client: bool(client.health()))  # type: ignore[misc]

    # --- disks ---

    def root(self, worker_id: str = "w1") -> Path:
        return self.disk(worker_id) / "root"

    def disk(self, worker_id: str) -> Path:
        return self.directory / f"{worker_id}-{self._disks[worker_id]}"

    def new_disk(self, worker_id: str) -> Path:
        """The next life of the worker has another, empty one; returns the one of before."""
        before = self.disk(worker_id)
        self._disks[worker_id] += 1
        return before

    @property
    def disks(self) -> dict[str, Path]:
        return {name: self.disk(name) for name in self._disks}

    def workspace(self, worker_id: str, sandbox_id: str) -> Path:
        """On the present disk of the worker, whether it is there or not."""
        return self.root(worker_id) / f"sandboxes/t-default/s-{sandbox_id}/workspace"

    # --- what becomes of a worker ---

    def is_over(self, worker_id: str, epoch: int) -> bool:
        """Declared lost or followed by another life, and nothing of it is open."""
        row = self.services.fleet.get(worker_id)
        over = row is None or row.epoch != epoch or row.status is WorkerStatus.GONE
        return over and not self.execs.open_for(worker_id, epoch)

    def epoch(self, worker_id: str) -> int:
        """Of a worker that lives by its lease."""
        found: list[int] = []

        def lives() -> bool:
            row = self.services.fleet.get(worker_id)
            if row is not None and row.live:
                found.append(row.epoch)
            return bool(found)

        eventually(lives)
        return found[0]

    def close(self) -> None:
        for client in self.clients:
            client.close()
        for member in self.members:
            member.proxy.restore()
            member.close()
        super().close()
        for member in self.members:
            member.proxy.close()

    # --- processes ---

    def _worker(self, name: str) -> tuple[list[str], Callable[[], Mapping[str, str]]]:
        def environ() -> Mapping[str, str]:
            temporary = self.disk(name) / "tmp"
            temporary.mkdir(mode=0o711, parents=True, exist_ok=True)
            self.disk(name).chmod(0o711)
            return {"SANDBOX_LOCAL_ROOT": str(self.root(name)), "TMPDIR": str(temporary)}

        return ["worker", "--id", name], environ

    def _member(self, name: str, what: tuple[list[str], Mapping[str, str] | Callable[[], Mapping[str, str]]]) -> Member:
        proxy = Proxy(self.servers.postgres.port)
        url = make_url(self.environ["SANDBOX_DATABASE_URL"]).set(host="127.0.0.1", port=proxy.port)
        through = {"SANDBOX_DATABASE_URL": url.render_as_string(hide_password=False)}
        arguments, more = what

        def launch() -> Process:
            own = more() if callable(more) else more
            environ = base_environment(**{**self.environ, **through, **own, "PYTHONPATH": str(self.tree)})
            log = self.directory / "logs" / f"{name}-{next(self._lives)}.log"
            process = Process([*CLI, *arguments], log_path=log, env=environ, cwd=self.tree)
            self._processes.append(process)
            return process

        return Member(name, proxy, launch)


def eventually(condition: Callable[[], bool], timeout_seconds: float = START_SECONDS) -> None:
    """As ``until``, of a service that may be away for a while."""

    def holds() -> bool:
        with contextlib.suppress(SandloomError):
            return condition()
        return False

    until(holds, timeout_seconds)
