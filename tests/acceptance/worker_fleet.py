"""A fleet for one test: real PostgreSQL, Redis and worker processes; the test itself plays the API."""

from __future__ import annotations

import base64
import itertools
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from sqlalchemy import update

from sandloom.broker.control import BusControl
from sandloom.broker.publisher import KombuPublisher
from sandloom.db.tables import workers
from sandloom.errors import ExecNotFound
from sandloom.execs.gateway import ExecGateway
from sandloom.execs.records import Exec, ExecRequest
from sandloom.execs.states import ExecStatus
from sandloom.ids import ExecKey
from sandloom.sandboxes.gateway import SandboxGateway
from sandloom.sandboxes.records import Route
from sandloom.settings import Settings
from tests.services.process import Process, base_environment
from workers.post import FleetPost
from workers.services import Services, open_services

#: For a process whose lease is to lapse, and for a beat that is to notice it: 3 s, a fence 1 s after it, a reaper that
#: waits 10 s in all. A process that must go on has a long one: any of them may stand still for seconds.
SHORT_LEASE = {"SANDBOX_HEARTBEAT_TTL_SECONDS": "3"}
PERIODS = {
    "SANDBOX_HEARTBEAT_INTERVAL_SECONDS": "1",
    "SANDBOX_HEARTBEAT_TTL_SECONDS": "60",
    "SANDBOX_ORPHAN_RUNNING_GRACE_SECONDS": "1",
    "SANDBOX_ORPHAN_RELEASE_GRACE_SECONDS": "8",
    "SANDBOX_TERMINATE_GRACE_SECONDS": "1",
    "SANDBOX_MAINTENANCE_INTERVAL_SECONDS": "1",
    # Not the default: workers of other tests may take those while one of these is dead.
    "SANDBOX_UID_START": "310000",
    "SANDBOX_UID_END": "319999",
}
CLI = (sys.executable, "-c", "import sys; from sandloom.cli import main; sys.exit(main())")
_numbers = itertools.count(1)


TOKEN = "a-token-of-the-test"
#: On a machine that others use, too.
START_SECONDS = 120
CALL_SECONDS = 60


def fleet_environment(database_url: str, redis_url: str, directory: Path, **settings: str) -> dict[str, str]:
    """The settings of each process of a fleet."""
    return {
        "SANDBOX_DATABASE_URL": database_url,
        "SANDBOX_BROKER_URL": redis_url,
        "SANDBOX_BUS_URL": redis_url,
        "SANDBOX_RESULT_BACKEND": redis_url,
        "SANDBOX_BROKER_NAMESPACE": f"test-{directory.name}",
        "SANDBOX_DATABASE_AUTO_DDL": "false",
        "SANDBOX_SECRET_KEY": "a-secret-key-of-the-test",
        "SANDBOX_INTERNAL_TOKEN": TOKEN,
        "SANDBOX_DATA_DIR": str(directory),
        "SANDBOX_LOG_FORMAT": "json",
        **PERIODS,
        **settings,
    }


class WorkerFleet:
    """Processes on shared servers. ``close`` ends what is left."""

    def __init__(self, database_url: str, redis_url: str, directory: Path, **settings: str) -> None:
        self._directory = directory
        self.environ = fleet_environment(database_url, redis_url, directory, **settings)
        self.settings = Settings.load(self.environ)
        self.services = _patient(open_services(self.settings))
        self.control = BusControl(self.services.publisher, self.services.bus, self.services.keys.fleet)
        self.sandboxes = self.services.sandboxes
        self.execs = self.services.execs
        self.sandbox_gateway = SandboxGateway(self.sandboxes, self.services.suspensions, self.control)
        self.exec_gateway = ExecGateway(
            self.execs, self.sandboxes, self.sandbox_gateway, self.services.publisher, self.control, self.services.bus
        )
        self._processes: list[Process] = []

    # --- processes ---

    def start_worker(self, worker_id: str = "w1", *, wait: bool = True, **settings: str) -> Process:
        environ = {"SANDBOX_LOCAL_ROOT": str(self.root(worker_id)), **settings}
        process = self._start(["worker", "--id", worker_id], environ)
        if wait:
            process.wait_for_output("worker started", timeout_seconds=START_SECONDS)
        return process

    def start_beat(self, **settings: str) -> Process:
        return self._start(["beat"], settings)

    def start_api(self, port: str) -> Process:
        return self._start(["api"], {"SANDBOX_HOST": "127.0.0.1", "SANDBOX_PORT": port})

    def root(self, worker_id: str = "w1") -> Path:
        return self._directory / f"root-{worker_id}"

    def _start(self, arguments: list[str], environ: Mapping[str, str]) -> Process:
        log_path = self._directory / f"process-{next(_numbers)}.log"
        process = Process([*CLI, *arguments], log_path=log_path, env=base_environment(**(self.environ | dict(environ))))
        self._processes.append(process)
        return process

    def close(self) -> None:
        for process in self._processes:
            process.stop(timeout_seconds=10)
        self.services.close()

    def lease_lives(self, worker_id: str = "w1") -> bool:
        """By the database's clock."""
        row = self.services.fleet.get(worker_id)
        return row is not None and row.live

    def lapse(self, worker_id: str = "w1") -> None:
        """As if the time of a dead worker's lease were over."""
        expired = update(workers).where(workers.c.worker_id == worker_id).values(lease_expires_us=1)
        self.services.db.write(lambda connection: connection.execute(expired).close())

    # --- what a client does ---

    def resolve(self, sandbox_id: str = "box", tenant_id: str = "default") -> Route:
        return self.sandboxes.resolve(tenant_id, sandbox_id, "scope", "coding-default", "test")

    def ready(self, sandbox_id: str = "box", tenant_id: str = "default") -> Route:
        route = self.resolve(sandbox_id, tenant_id)
        return self.sandbox_gateway.connect(route.key, route.generation)

    def start(self, route: Route, argv: list[str], exec_id: str | None = None, **request: Any) -> ExecKey:
        """Admit and ring."""
        name = exec_id or f"exec-{next(_numbers)}"
        wanted = ExecRequest(name, tuple(argv), **{"exec_scope": f"scope-{name}", **request})
        self.exec_gateway.start(route.key, route.generation, wanted)
        return ExecKey(*route.key, name)

    def shell(self, route: Route, script: str, exec_id: str | None = None, **request: Any) -> ExecKey:
        return self.start(route, ["sh", "-c", script], exec_id, **request)

    def ended(self, key: ExecKey, timeout_seconds: float = 120) -> Exec:
        """The terminal record with its output."""
        until(lambda: self.execs.get(key).terminal, timeout_seconds)
        return self.execs.get(key, output=True)

    def run(self, route: Route, script: str, **request: Any) -> Exec:
        return self.ended(self.shell(route, script, **request))

    def until_running(self, key: ExecKey) -> None:
        """Also for an exec that others are about to admit."""

        def runs() -> bool:
            try:
                return self.execs.get(key).status is ExecStatus.RUNNING
            except ExecNotFound:
                return False

        until(runs)

    def until_admitted(self, key: ExecKey) -> None:
        def is_there() -> bool:
            try:
                return bool(self.execs.get(key))
            except ExecNotFound:
                return False

        until(is_there)

    def file(self, route: Route, name: str, data: bytes) -> None:
        arguments = {
            "sandbox_id": route.key.sandbox_id,
            "generation": route.generation,
            "path": f"/workspace/{name}",
            "content_base64": base64.b64encode(data).decode(),
        }
        self.control.call(
            route.queue, "sandloom.files.write", route.key.tenant_id, arguments, timeout_seconds=CALL_SECONDS
        )

    def read(self, route: Route, name: str) -> bytes:
        arguments = {
            "sandbox_id": route.key.sandbox_id, "generation": route.generation, "path": f"/workspace/{name}",
        }  # fmt: skip
        answer = self.control.call(
            route.queue, "sandloom.files.read", route.key.tenant_id, arguments, timeout_seconds=CALL_SECONDS
        )
        return base64.b64decode(answer["content_base64"])


def _patient(services: Services) -> Services:
    """With a publisher that does not give up a broker which stands still for a moment."""
    settings = services.settings
    publisher = KombuPublisher(settings.broker_url, namespace=settings.broker_namespace, timeout_seconds=CALL_SECONDS)
    return replace(services, publisher=publisher, post=FleetPost(publisher, services.keys.fleet))


def until(condition: Callable[[], bool], timeout_seconds: float = 120) -> None:
    """Wait for a state of rows or processes that nobody announces."""
    deadline = time.monotonic() + timeout_seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def processes_with(marker: str) -> list[int]:
    """Pids of processes whose command line holds ``marker``."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if marker.encode() in words:
                found.append(int(entry.name))
    return found
