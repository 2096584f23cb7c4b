"""What dead workers leave in a broker is removed; what living ones use stays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import pytest
import redis
from kombu import Connection, Consumer

from sandloom.broker.cleaning import NothingToClean, RedisCleaner, open_cleaner
from sandloom.broker.publisher import KombuPublisher
from sandloom.broker.queues import queue, worker_queue, worker_queues
from sandloom.broker.rabbitmq import make_queues
from sandloom.reclaim.queues import UnusedQueues
from tests.services.account import free_port
from tests.services.rabbitmq import RabbitServer
from tests.services.redis import RedisServer
from workers.broker_cleaning import BrokerCleaning

SEPARATOR = "\x06\x16"


def binding(node: str) -> str:
    return SEPARATOR.join(("", "", f"{node}.celery.pidbox"))


def test_on_redis_queues_of_all_priorities_and_bindings_of_dead_workers_go(redis_server: RedisServer) -> None:
    database = redis_server.new_database()
    cleaner = open_cleaner(redis_server.url(database), "blue")
    publisher = KombuPublisher(redis_server.url(database), namespace="blue", timeout_seconds=60)
    for worker_id in ("w1", "w10", "lives"):
        publisher.send(worker_queue(worker_id), "sandloom.x", {})
    publisher.close()
    with redis_server.client(database) as client:
        client.lpush(f"blue:sandloom.worker.w1{SEPARATOR}3", "a message of another priority")
        client.lpush("green:sandloom.worker.w1", "of another deployment")
        nodes = ("w1@host", "w10@host", "lives@host", "w1@a.long.name")
        client.sadd("blue:_kombu.binding.celery.pidbox", *map(binding, nodes))
        assert cleaner.remove_workers(["w1", "w10", "never-there"]) == 2
        assert cleaner.remove_workers(["w1", "w10", "never-there"]) == 0
        assert set(client.keys()) == {
            b"blue:sandloom.worker.lives", b"blue:_kombu.binding.celery.pidbox", b"green:sandloom.worker.w1",
        }  # fmt: skip
        assert client.smembers("blue:_kombu.binding.celery.pidbox") == {binding("lives@host").encode()}


def test_on_redis_replies_that_nobody_fetches_end(redis_server: RedisServer) -> None:
    database = redis_server.new_database()
    cleaner = RedisCleaner(redis_server.url(database), "b[*]")
    with redis_server.client(database) as client:
        client.lpush("b[*]:0000.reply.celery.pidbox", "a reply")
        client.lpush("b-x:0000.reply.celery.pidbox", "of another deployment")
        assert cleaner.expire_replies() == 1
        assert cleaner.expire_replies() == 0
        assert cast(int, client.ttl("b[*]:0000.reply.celery.pidbox")) > 0
        assert client.ttl("b-x:0000.reply.celery.pidbox") == -1


def test_on_rabbitmq_a_queue_that_is_consumed_stays(rabbit: RabbitServer) -> None:
    host = rabbit.new_host()
    url = rabbit.url(host)
    assert make_queues(url, [*worker_queues("w1", url), *worker_queues("back", url), *worker_queues("lives", url)])
    cleaner = open_cleaner(url, "ignored")
    with Connection(url) as connection:
        channel: Any = connection.default_channel
        returned = queue(worker_queue("back"), declared=False)(channel)
        with Consumer(channel, [returned], callbacks=[lambda *_: None]):
            assert cleaner.remove_workers(["w1", "back", "never-there"]) == 1
    kept = {"sandloom.worker.back", "sandloom.worker.lives", "sandloom.dispatch", "sandloom.maintenance"}
    assert rabbit.queues(host) == kept
    assert cleaner.remove_workers(["back", "w1"]) == 1
    assert rabbit.queues(host) == kept - {"sandloom.worker.back"}


@dataclass
class Dead:
    """In the place of the rows."""

    workers: dict[str, int]
    batch_size: int = 2

    def after(self, worker_id: str) -> list[tuple[str, int]]:
        return sorted(pair for pair in self.workers.items() if pair[0] > worker_id)[: self.batch_size]


def cleaning(dead: Dead, url: str) -> BrokerCleaning:
    return BrokerCleaning(cast(UnusedQueues, dead), open_cleaner(url, "blue"))


def test_each_dead_life_costs_the_broker_one_request(redis_server: RedisServer) -> None:
    database = redis_server.new_database()
    dead = Dead({"w1": 1, "w2": 1, "w3": 1})
    cleaner = cleaning(dead, redis_server.url(database))
    with redis_server.client(database) as client:

        def leave(*worker_ids: str) -> None:
            for worker_id in worker_ids:
                client.lpush(f"blue:{worker_queue(worker_id)}", "a message")

        leave("w1", "w2", "w3")
        assert [cleaner.remove_queues() for _ in range(4)] == [2, 1, 0, 0]
        leave("w1", "w2")
        dead.workers["w2"] = 2  # it came back, and died again
        assert sum(cleaner.remove_queues() for _ in range(3)) == 1
        assert client.keys() == [b"blue:sandloom.worker.w1"]


def test_a_broker_that_is_down_is_asked_again(private_redis: RedisServer) -> None:
    cleaner = cleaning(Dead({"w1": 1}), private_redis.url())
    with private_redis.client() as client:
        client.lpush(f"blue:{worker_queue('w1')}", "a message")
    private_redis.stop()
    assert cleaner.remove_queues() == 0
    cleaner.expire_replies()
    private_redis.start()
    assert cleaner.remove_queues() == 1


def test_in_one_process_there_is_nothing_to_remove() -> None:
    assert isinstance(open_cleaner("memory://", "blue"), NothingToClean)


def test_queues_cannot_be_made_where_nobody_is() -> None:
    assert not make_queues(f"amqp://u:hunter2@127.0.0.1:{free_port()}//", worker_queues("w1"))
    with pytest.raises(redis.RedisError):
        open_cleaner(f"redis://127.0.0.1:{free_port()}/0", "blue").remove_workers(["w1"])
