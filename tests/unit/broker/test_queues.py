"""Names, routing and transport options."""

from __future__ import annotations

import ssl
from typing import Any

import pytest
from celery import Celery
from kombu import Connection

from sandloom.broker import queues
from sandloom.errors import SettingsInvalid


def test_a_worker_consumes_its_own_queue_dispatch_and_maintenance() -> None:
    names = [queue.name for queue in queues.worker_queues("w-1")]
    assert names == ["sandloom.worker.w-1", "sandloom.dispatch", "sandloom.maintenance"]


def test_queues_are_durable_and_on_the_default_exchange() -> None:
    for queue in queues.worker_queues("w-1"):
        assert queue.durable
        assert queue.exchange.name == ""
        assert queue.routing_key == queue.name


def test_celery_leaves_the_queues_on_the_default_exchange() -> None:
    app = Celery("test", broker="memory://", set_as_current=False)
    app.conf.update(task_queues=queues.worker_queues("w-1"), task_default_exchange="")
    assert {queue.exchange.name for queue in app.amqp.queues.consume_from.values()} == {""}


def test_memory_is_mapped_to_the_event_driven_transport() -> None:
    url = queues.broker_url("memory://")
    assert queues.is_memory(url)
    with Connection(url) as connection:
        assert connection.transport.driver_name == "sandloom-memory"


@pytest.mark.parametrize("url", ["redis://:pw@h:1/0", "rediss://h/0", "amqp://u:p@h//"])
def test_other_brokers_keep_their_url(url: str) -> None:
    assert queues.broker_url(url) == url
    assert not queues.is_memory(url)


@pytest.mark.parametrize("url", ["", "redis", "sqla+sqlite:///x", "http://u:hunter2@h"])
def test_an_unknown_broker_is_a_setting_error_that_does_not_show_the_url(url: str) -> None:
    with pytest.raises(SettingsInvalid) as caught:
        queues.broker_url(url)
    assert "hunter2" not in str(caught.value)


def test_redis_keys_carry_the_namespace() -> None:
    assert queues.transport_options("redis://h", "blue", consume=True)["global_keyprefix"] == "blue:"


def test_a_consumer_may_wait_longer_than_its_blocking_pop() -> None:
    assert queues.transport_options("redis://h", "blue", consume=True)["socket_timeout"] > 10
    assert queues.transport_options("redis://h", "blue", consume=False)["socket_timeout"] <= 1


def test_tls_checks_certificates_unless_the_url_says_otherwise() -> None:
    with Connection("rediss://h/0", ssl=queues.tls_options("rediss://h/0")) as connection:
        assert connection.ssl == {"ssl_cert_reqs": ssl.CERT_REQUIRED}
    assert queues.tls_options("redis://h") is False


def test_tls_of_rabbitmq_checks_certificate_and_name_unless_the_url_says_otherwise() -> None:
    url = "amqps://u:p@h:5671/v?ssl_ca_certs=/ca.pem&heartbeat=5&ssl_certfile=/c.pem&ssl_keyfile=/k.pem"
    assert queues.tls_options(url) == {
        "cert_reqs": ssl.CERT_REQUIRED, "server_hostname": "h", "ca_certs": "/ca.pem", "certfile": "/c.pem",
        "keyfile": "/k.pem",
    }  # fmt: skip
    assert queues.broker_url(url) == "amqps://u:p@h:5671/v?heartbeat=5"
    assert queues.tls_options("amqps://h//?ssl_cert_reqs=none") == {"cert_reqs": ssl.CERT_NONE}
    assert queues.tls_options("amqps://h//?ssl_check_hostname=false") == {"cert_reqs": ssl.CERT_REQUIRED}
    assert queues.tls_options("amqp://h//") is False
    with pytest.raises(SettingsInvalid):
        queues.tls_options("amqps://u:hunter2@h//?ssl_cert_reqs=perhaps")


def test_whoever_sends_to_a_worker_does_not_make_its_queue() -> None:
    own: Any = queues.worker_queues("w-1")[0]
    sent_to: Any = queues.owner_queue(own.name)
    shared: Any = queues.queue(queues.DISPATCH_QUEUE)
    assert (own.no_declare, sent_to.no_declare, shared.no_declare) == (None, True, None)


def test_only_on_rabbitmq_a_workers_queue_has_a_lifetime() -> None:
    def lifetime(url: str) -> Any:
        own: Any = queues.worker_queues("w-1", url)[0]
        return own.expires

    lifetimes = {url: lifetime(url) for url in ("redis://h", "memory://", "amqp://h")}
    assert lifetimes == {"redis://h": None, "memory://": None, "amqp://h": queues.UNUSED_SECONDS}
