"""The same fleet over Redis and over RabbitMQ, and what it does when the broker comes back with nothing."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from celery import chain, group

from sandloom.direct import Fleet
from sandloom.errors import NoWorkerAvailable, StaleRoute, Unavailable
from sandloom.execs.states import ExecStatus
from tests.acceptance.worker_fleet import WorkerFleet, until
from tests.services.rabbitmq import RabbitServer
from tests.services.redis import RedisServer
from workers.app import create_celery

pytestmark = [pytest.mark.bwrap, pytest.mark.slow]
LONG_SECONDS = 120.0


@pytest.fixture
def rabbit_fleet(postgres_url: str, rabbit: RabbitServer, redis_url: str, data_dir: Path) -> Iterator[WorkerFleet]:
    """RabbitMQ over TLS carries the messages, Redis wake-ups and results."""
    ca = rabbit.certificates.ca
    broker = f"{rabbit.tls_url(rabbit.new_host())}?ssl_ca_certs={ca}"
    fleet = WorkerFleet(postgres_url, redis_url, data_dir, SANDBOX_BROKER_URL=broker)
    yield fleet
    fleet.close()


def broker_state(fleet: WorkerFleet, worker_id: str = "w1") -> dict[str, Any]:
    row = fleet.services.fleet.get(worker_id)
    return dict(row.load.get("broker") or {}) if row is not None else {}


def short_of(fleet: WorkerFleet, worker_id: str = "w1") -> str | None:
    row = fleet.services.fleet.get(worker_id)
    return row.short_of if row is not None else None


def is_ready(fleet: WorkerFleet, worker_id: str = "w1") -> bool:
    return broker_state(fleet, worker_id).get("ready") is True


def test_commands_cancels_files_and_direct_clients_over_rabbitmq(
    rabbit_fleet: WorkerFleet, rabbit: RabbitServer
) -> None:
    fleet = rabbit_fleet
    host = urlsplit(fleet.settings.broker_url).path.lstrip("/")
    worker = fleet.start_worker()
    route = fleet.ready()
    fleet.file(route, "a", b"\x00binary\xff")
    assert fleet.read(route, "a") == b"\x00binary\xff"
    assert fleet.run(route, "wc -c < /workspace/a").stdout == b"8\n"
    sleeping = fleet.shell(route, "sleep 4711.5")
    fleet.until_running(sleeping)
    fleet.exec_gateway.cancel(sleeping, route.generation)
    assert fleet.ended(sleeping).status is ExecStatus.CANCELLED

    client = Fleet(
        fleet.settings.broker_url, api_key="a-token-of-the-test", result_backend=fleet.settings.result_backend,
        namespace=fleet.settings.broker_namespace,
    )  # fmt: skip
    box = client.sandbox("direct", scope="scope")
    box.files.write("/workspace/b", "through RabbitMQ")
    first, second = box.exec_signature(["cp", "b", "c"]), box.exec_signature(["cat", "/workspace/c"])
    result: Any = chain(first, second, app=client.app).apply_async()
    assert result.get(timeout=LONG_SECONDS)["stdout"] == "through RabbitMQ"
    with pytest.raises(StaleRoute):
        client.call("sandloom.connect", {"sandbox_id": "direct", "generation": box.generation + 1})
    with pytest.raises(Unavailable):
        client.call("sandloom.connect", {"sandbox_id": "direct", "generation": 1}, owner_queue="sandloom.worker.none")
    client.close()

    until(lambda: is_ready(fleet))
    assert broker_state(fleet)["warnings"] == []
    assert worker.stop(timeout_seconds=LONG_SECONDS) == 0
    # Mailboxes of remote control end half a minute later.
    kept = {"sandloom.worker.w1", "sandloom.dispatch", "sandloom.maintenance"}
    until(lambda: {name for name in rabbit.queues(host) if not name.endswith(".celery.pidbox")} == kept)
    assert rabbit.password not in worker.output()


@pytest.mark.parametrize("kind", ["redis", "rabbitmq"])
def test_accepted_work_finishes_when_the_broker_lost_everything(
    postgres_url: str, redis_url: str, data_dir: Path, request: pytest.FixtureRequest, kind: str
) -> None:
    server: RedisServer | RabbitServer = request.getfixturevalue("private_redis" if kind == "redis" else "rabbit")
    bus = server.new_url() if kind == "redis" else redis_url
    broker = bus if kind == "redis" else server.new_url()
    fleet = WorkerFleet(
        postgres_url, bus, data_dir, SANDBOX_BROKER_URL=broker, SANDBOX_MAINTENANCE_INTERVAL_SECONDS="5"
    )
    try:
        worker = fleet.start_worker(SANDBOX_WORKER_EXEC_SLOTS="1")
        fleet.start_beat()
        route = fleet.ready()
        until(lambda: is_ready(fleet))
        slow = fleet.shell(route, "while [ ! -e go ]; do sleep 0.1; done; echo slow")
        fleet.until_running(slow)
        waiting = fleet.shell(route, "echo waited")
        mark = worker.mark()
        server.kill()
        unheard = fleet.shell(route, "echo never rung")
        worker.wait_for_output("the node does not hear its queue", after=mark)
        until(lambda: short_of(fleet) == "broker")
        with pytest.raises(NoWorkerAvailable):
            fleet.resolve("other")
        server.restart(empty=True)
        worker.wait_for_output("the node hears its queue", after=mark, timeout_seconds=LONG_SECONDS)
        until(lambda: is_ready(fleet) and short_of(fleet) is None)
        assert fleet.resolve("other").worker_id == "w1"
        # A request of now goes through the queue that the worker made again.
        until(lambda: bool(fleet.services.bus.connected))
        fleet.file(route, "go", b"")
        assert fleet.ended(slow).stdout == b"slow\n"
        assert fleet.ended(waiting).stdout == b"waited\n"
        assert fleet.ended(unheard).stdout == b"never rung\n"
        assert fleet.run(route, "echo new").stdout == b"new\n"
    finally:
        fleet.close()


def channels(client: Any) -> set[bytes]:
    """All of the server, which other tests use as well."""
    return set(client.execute_command("PUBSUB", "CHANNELS", b"*"))


def test_over_tls_every_key_and_channel_of_redis_carries_the_prefix(
    postgres_url: str, redis_server: RedisServer, data_dir: Path
) -> None:
    database = redis_server.new_database()
    url = f"{redis_server.tls_url(database)}?ssl_ca_certs={redis_server.certificates.ca}"
    with redis_server.client(database) as plain:
        of_others = channels(plain)
    fleet = WorkerFleet(postgres_url, url, data_dir)
    prefix = f"{fleet.settings.broker_namespace}:".encode()
    seen: set[bytes] = set()
    try:
        worker = fleet.start_worker()
        fleet.start_beat()
        route = fleet.ready()
        assert fleet.run(route, "echo over TLS").stdout == b"over TLS\n"
        client = Fleet(url, api_key="a-token-of-the-test", namespace=fleet.settings.broker_namespace)
        box = client.sandbox("direct", scope="scope")
        parts = [box.exec_signature(["echo", str(number)], exec_scope=f"s-{number}") for number in range(2)]
        results: Any = group(parts, app=client.app).apply_async()
        assert [record["stdout"] for record in results.get(timeout=LONG_SECONDS)] == ["0\n", "1\n"]
        app = create_celery(fleet.settings, [])
        with app.connection_for_read() as connection, redis_server.client(database) as plain:
            receiver = app.events.Receiver(connection, handlers={"*": lambda event: None})
            with receiver.consumer_context():
                assert app.control.ping(timeout=LONG_SECONDS, limit=1)
                os.kill(worker.pid, signal.SIGSTOP)
                for _ in range(2):  # one goes to the worker's waiting connection, the next has to wait
                    fleet.services.publisher.send(route.queue, "sandloom.files.stat", {})
                seen |= set(plain.keys()) | channels(plain)
                os.kill(worker.pid, signal.SIGCONT)
        client.close()
        app.close()
    finally:
        fleet.close()
    kinds = ("sandloom.worker.w1", "celery-task-meta-", "_kombu.binding", "heads", "reply:", "celery.pidbox")
    mine = seen - of_others
    for kind in kinds:
        assert any(kind.encode() in name for name in mine), (kind, seen)
    assert [name for name in mine if not name.startswith(prefix)] == []
    assert redis_server.password not in worker.output()
