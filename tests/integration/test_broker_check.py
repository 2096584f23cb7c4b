"""What servers say at a start: what they refuse, what they would drop, and that they are not there."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sandloom.broker import refusals
from sandloom.broker.check import check_servers, warnings_of
from sandloom.broker.publisher import KombuPublisher
from sandloom.broker.queues import DISPATCH_QUEUE
from sandloom.errors import BrokerRefused
from sandloom.settings import Settings
from tests.services.account import free_port
from tests.services.process import Process, base_environment
from tests.services.rabbitmq import RabbitServer
from tests.services.redis import RedisServer


def settings(broker: str, **more: str) -> Settings:
    return Settings.load({"SANDBOX_BROKER_URL": broker, **more})


def refusal(url: str) -> str:
    """The sentence with which a start ends, and with which a message is not sent; it names no secret."""
    with pytest.raises(BrokerRefused) as caught:
        check_servers(settings(url))
    said = str(caught.value.to_problem()) + repr(caught.value)
    assert "SANDBOX_BROKER_URL" in said
    assert "secret-of" not in said
    publisher = KombuPublisher(url, timeout_seconds=60)
    with pytest.raises(BrokerRefused) as unsent:
        publisher.send(DISPATCH_QUEUE, "sandloom.x", {})
    publisher.close()
    assert "secret-of" not in str(unsent.value.to_problem())
    assert unsent.value.extra["reason"] == caught.value.extra["reason"]
    return str(caught.value.extra["reason"])


def test_redis_says_what_it_refuses(redis_server: RedisServer, tmp_path: Path) -> None:
    ca = f"?ssl_ca_certs={redis_server.certificates.ca}"
    port, tls_port, password = redis_server.port, redis_server.tls_port, redis_server.password
    assert refusal(f"redis://:secret-of-nobody@127.0.0.1:{port}/0") == refusals.CREDENTIALS
    assert refusal(f"redis://127.0.0.1:{port}/0") == refusals.CREDENTIALS
    assert refusal(f"redis://:{password}@127.0.0.1:{port}/999999") == refusals.DATABASE
    assert refusal(redis_server.tls_url()) == refusals.CERTIFICATE
    assert refusal(f"{redis_server.tls_url()}?ssl_ca_certs={tmp_path}/none.pem") == refusals.TLS_FILES
    assert refusal(f"rediss://:secret-of-nobody@127.0.0.1:{tls_port}/0{ca}") == refusals.CREDENTIALS


def test_rabbitmq_says_what_it_refuses(rabbit: RabbitServer, tmp_path: Path) -> None:
    ca = f"?ssl_ca_certs={rabbit.certificates.ca}"
    tls_port, password = rabbit.tls_port, rabbit.password
    assert refusal(f"amqp://sandloom:secret-of-nobody@127.0.0.1:{rabbit.port}/t0") == refusals.CREDENTIALS
    assert refusal(rabbit.url("no-such-host")) == refusals.VIRTUAL_HOST
    assert refusal(rabbit.tls_url()) == refusals.CERTIFICATE
    assert refusal(f"{rabbit.url().replace('amqp:', 'amqps:')}{ca}") == refusals.NO_TLS
    assert refusal(f"{rabbit.tls_url()}?ssl_ca_certs={tmp_path}/none.pem") == refusals.TLS_FILES
    assert refusal(f"amqps://sandloom:secret-of-nobody@127.0.0.1:{tls_port}/t0{ca}") == refusals.CREDENTIALS
    assert password not in refusal(rabbit.url("no-such-host"))


def test_a_server_for_several_settings_is_asked_once(redis_server: RedisServer, rabbit: RabbitServer) -> None:
    (only,) = check_servers(settings(redis_server.url()))
    assert only.names == ("SANDBOX_BROKER_URL", "SANDBOX_BUS_URL", "SANDBOX_RESULT_BACKEND")
    tls = f"{rabbit.tls_url()}?ssl_ca_certs={rabbit.certificates.ca}"
    found = check_servers(settings(tls, SANDBOX_BUS_URL=redis_server.url()))
    assert [(server.names, server.kind, server.reachable) for server in found] == [
        (("SANDBOX_BROKER_URL",), "rabbitmq", True),
        (("SANDBOX_BUS_URL", "SANDBOX_RESULT_BACKEND"), "redis", True),
    ]
    assert [warning for server in found for warning in server.warnings] == []
    assert check_servers(Settings.load({})) == []


def test_a_redis_that_drops_what_it_holds_is_reported(private_redis: RedisServer) -> None:
    with private_redis.client() as client:
        client.config_set("maxmemory-policy", "allkeys-lru")
        (warning,) = warnings_of(settings(private_redis.url()))
        assert "allkeys-lru" in warning
        assert "noeviction" in warning
        client.config_set("maxmemory-policy", "noeviction")
        assert warnings_of(settings(private_redis.url())) == []
        # An account that may do little more than work.
        client.execute_command("ACL", "SETUSER", "modest", "on", ">secret-of-modest", "~*", "&*", "+@all", "-info")
    modest = f"redis://modest:secret-of-modest@127.0.0.1:{private_redis.port}/0"
    (warning,) = warnings_of(settings(modest))
    assert "does not tell" in warning


@pytest.mark.parametrize("scheme", ["redis", "rediss", "amqp", "amqps"])
def test_a_server_that_is_not_there_is_no_error(scheme: str) -> None:
    (found,) = check_servers(settings(f"{scheme}://u:secret-of-u@127.0.0.1:{free_port()}/0", SANDBOX_BUS_URL="memory://",
                                      SANDBOX_RESULT_BACKEND="none://"))  # fmt: skip
    assert not found.reachable
    (warning,) = found.warnings
    assert "SANDBOX_BROKER_URL" in warning
    assert "secret-of" not in warning


def test_a_process_whose_broker_refuses_it_ends_with_2(redis_server: RedisServer, tmp_path: Path) -> None:
    environ = {
        "SANDBOX_BROKER_URL": f"redis://:secret-of-nobody@127.0.0.1:{redis_server.port}/0",
        "SANDBOX_DATA_DIR": str(tmp_path),
        "SANDBOX_SECRET_KEY": "a-secret-key-of-the-test",
        "SANDBOX_INTERNAL_TOKEN": "a-token-of-the-test",
    }
    argv = [sys.executable, "-c", "import sys; from sandloom.cli import main; sys.exit(main())", "beat"]
    process = Process(argv, log_path=tmp_path / "beat.log", env=base_environment(**environ))
    assert process.wait() == 2
    assert f"{BrokerRefused.code}: SANDBOX_BROKER_URL" in process.output()
    assert "secret-of" not in process.output()
