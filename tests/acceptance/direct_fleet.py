"""One fleet for the tests of direct clients: two workers, beat and an API over PostgreSQL and Redis."""

from __future__ import annotations

from pathlib import Path

import httpx
from celery.result import AsyncResult

from sandloom.direct import Fleet, FleetSandbox
from tests.acceptance.worker_fleet import TOKEN, WorkerFleet, until
from tests.services.account import free_port
from tests.services.process import Process

LONG_SECONDS = 120.0


class DirectFleet(WorkerFleet):
    """``close`` ends what is left."""

    def __init__(self, database_url: str, redis_url: str, directory: Path) -> None:
        # On a busy machine a worker that restarts is away for longer than the short form allows.
        super().__init__(database_url, redis_url, directory, SANDBOX_ORPHAN_RELEASE_GRACE_SECONDS="600")
        self.workers: dict[str, Process] = {name: self.start_worker(name) for name in ("w1", "w2")}
        self.start_beat()
        port = str(free_port())
        self.start_api(port)
        self.url = f"http://127.0.0.1:{port}"

    def until_api(self) -> None:
        def answers() -> bool:
            try:
                return httpx.get(f"{self.url}/health", trust_env=False).status_code == 200
            except httpx.TransportError:
                return False

        until(answers)

    def client(self) -> Fleet:
        return Fleet(self.environ["SANDBOX_BROKER_URL"], api_key=TOKEN, namespace=self.settings.broker_namespace)

    @property
    def variables(self) -> dict[str, str]:
        """What a client of REST or of the broker has in its environment."""
        broker = {name: self.environ[name] for name in ("SANDBOX_BROKER_URL", "SANDBOX_BROKER_NAMESPACE")}
        return {**broker, "SANDBOX_BASE_URL": self.url, "SANDBOX_INTERNAL_TOKEN": TOKEN}


def boxes_on(client: Fleet, name: str, *workers: str) -> list[FleetSandbox]:
    """A sandbox on each of the workers."""
    found: dict[str, FleetSandbox] = {}
    spare: list[FleetSandbox] = []
    for number in range(20):
        box = client.sandbox(f"{name}-{number}", scope="direct")
        # Kept until the end: a place that is given back would be taken again.
        if found.setdefault(box.route.worker_id, box) is not box:
            spare.append(box)
        if found.keys() >= set(workers):
            break
    for box in spare:
        box.release()
    return [found[worker] for worker in workers]


def until_state(result: AsyncResult, state: str) -> None:
    until(lambda: bool(result.state == state))
