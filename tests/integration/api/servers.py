"""The API as a server: gunicorn as a process, waitress in this one."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx

from api.app import create_app
from api.embedded import serve
from api.services import assemble
from sandloom.broker.publisher import KombuPublisher
from sandloom.contracts.ports import Bus
from sandloom.db import Database, open_database
from sandloom.settings import Settings
from sandloom.streams import open_bus
from tests.integration.api import documented
from tests.integration.api.owner import Owner
from tests.services.account import free_port
from tests.services.process import Process, base_environment

TOKEN = "operator-token-of-this-test"
PREVIOUS_TOKEN = "operator-token-before-the-rotation"


@dataclass
class Api:
    """A running API with its database and bus."""

    url: str
    settings: Settings
    db: Database
    bus: Bus
    owner: Owner
    stop: Callable[[], object]
    process: Process | None = None
    tenant_id: str = "default"

    @property
    def host_port(self) -> tuple[str, int]:
        parsed = httpx.URL(self.url)
        return parsed.host, int(parsed.port or 0)

    def for_tenant(self, tenant_id: str) -> Api:
        """The same deployment, seen by a tenant of its own."""
        self.owner.tenant_id = tenant_id
        return replace(self, tenant_id=tenant_id)

    def client(self, token: str | None = TOKEN, **options: Any) -> httpx.Client:
        headers = {"X-Sandbox-Tenant": self.tenant_id}
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        options.setdefault("timeout", 60)
        options.setdefault("event_hooks", {"response": [documented.check]})
        return httpx.Client(base_url=self.url, headers=headers | options.pop("headers", {}), trust_env=False, **options)

    def ready_sandbox(self, sandbox_id: str = "box", client: httpx.Client | None = None) -> int:
        """Resolve a sandbox and make it READY; returns its generation."""
        with self.client() as fallback:
            body = {"sandbox_id": sandbox_id, "workspace_scope_id": "scope"}
            answer = (client or fallback).post("/api/v1/sandboxes/resolve", json=body)
        assert answer.status_code == 200, answer.text
        generation = int(answer.json()["generation"])
        self.owner.make_ready(sandbox_id, generation)
        return generation


def environment(database_url: str, directory: Path, port: int, **more: str) -> dict[str, str]:
    return {
        "SANDBOX_HOST": "127.0.0.1",
        "SANDBOX_PORT": str(port),
        "SANDBOX_DATA_DIR": str(directory),
        "SANDBOX_INTERNAL_TOKEN": TOKEN,
        "SANDBOX_INTERNAL_TOKEN_PREVIOUS": PREVIOUS_TOKEN,
        "SANDBOX_SECRET_KEY": "secret-key-of-this-test",
        "SANDBOX_DATABASE_URL": database_url,
        "SANDBOX_LOG_FORMAT": "json",
        **more,
    }


@contextmanager
def embedded(database_url: str, directory: Path, **more: str) -> Iterator[Api]:
    """The one-process mode without its worker."""
    settings = Settings.load(environment(database_url, directory, free_port(), **more)).embedded()
    db = open_database(database_url)
    bus = open_bus(settings.bus_url, settings.broker_namespace)
    services = assemble(settings, db, bus, KombuPublisher(settings.broker_url))
    server = serve(create_app(services), settings)
    server.start()
    try:
        owner = Owner(db, bus, settings.profile_hash)
        yield Api(f"http://127.0.0.1:{settings.port}", settings, db, bus, owner, server.close)
    finally:
        server.close()
        services.close()


@contextmanager
def gunicorn(database_url: str, redis_url: str, directory: Path, **more: str) -> Iterator[Api]:
    """A process of a fleet; the test is its worker."""
    urls = {"SANDBOX_BROKER_URL": redis_url, "SANDBOX_BUS_URL": redis_url, "SANDBOX_BROKER_NAMESPACE": directory.name}
    variables = environment(database_url, directory, free_port(), **urls, **more)
    settings = Settings.load(variables)
    argv = [sys.executable, "-m", "gunicorn", "-c", "api/gunicorn_conf.py", "api.wsgi:create()"]
    with Process(argv, log_path=directory / "api.log", env=base_environment(**variables)) as process:
        process.wait_for_output("Booting worker")
        url = f"http://127.0.0.1:{settings.port}"
        # The listening socket is there before the application is, so this waits for the first answer.
        assert httpx.get(f"{url}/health", timeout=120, trust_env=False).text == "ok"
        db = open_database(database_url)
        bus = open_bus(settings.bus_url, settings.broker_namespace)
        try:
            owner = Owner(db, bus, settings.profile_hash)
            yield Api(url, settings, db, bus, owner, lambda: process.send_signal(signal.SIGTERM), process)
        finally:
            bus.close()
            db.dispose()
