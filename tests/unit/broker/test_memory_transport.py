"""The in-process transport wakes its consumers for every event, and keeps every message."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from queue import Queue as Fifo
from typing import Any

import pytest
from kombu import Connection as KombuConnection
from kombu import Exchange, Queue

from sandloom.broker import memory
from sandloom.broker.queues import queue

LONG_SECONDS = 120.0
#: kombu's types know nothing of what a transport adds.
Connection: Any = KombuConnection
Q = queue("q")


@pytest.fixture
def connect(request: pytest.FixtureRequest) -> Iterator[Callable[[], Any]]:
    """Makes connections to a broker of this test alone."""
    made: list[Any] = []

    def make() -> Any:
        made.append(Connection(f"sandloom-memory://localhost/{request.node.name}"))
        return made[-1]

    yield make
    for connection in made:
        connection.close()


def publish(connection: Any, body: Any, *, to: Queue = Q, exchange: str = "", key: str | None = None) -> None:
    connection.Producer().publish(body, exchange=exchange, routing_key=to.name if key is None else key)


@contextmanager
def consuming(
    connection: Any, *queues: Queue, prefetch: int = 0, no_ack: bool = False
) -> Iterator[Fifo[tuple[Any, Any]]]:
    got: Fifo[tuple[Any, Any]] = Fifo()
    consumer = connection.Consumer(queues, callbacks=[lambda body, message: got.put((body, message))], no_ack=no_ack)
    if prefetch:
        consumer.qos(prefetch_count=prefetch)
    with consumer:
        yield got


def drain(connection: Any, times: int = 1) -> None:
    for _ in range(times):
        connection.drain_events(timeout=LONG_SECONDS)


@contextmanager
def draining(connection: Any) -> Iterator[Future[float]]:
    """One blocking drain in a thread that is inside its wait when the block begins; the future has its seconds."""
    entered = threading.Event()
    wakeup = connection.transport.wakeup
    wait = wakeup.wait

    def waiting(seen: int, timeout_seconds: float | None) -> bool:
        entered.set()
        return bool(wait(seen, timeout_seconds))

    wakeup.wait = waiting

    def run() -> float:
        started = time.monotonic()
        connection.drain_events(timeout=LONG_SECONDS)
        return time.monotonic() - started

    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(run)
        assert entered.wait(LONG_SECONDS)
        yield future
        wakeup.wait = wait


def test_a_message_comes_out_as_it_went_in(connect: Callable[[], Any]) -> None:
    body = {"text": "ä", "n": [1, 2.5, None]}
    consumer = connect()
    with consuming(consumer, Q) as got:
        publish(connect(), body)
        drain(consumer)
        assert got.get_nowait()[0] == body


def test_messages_come_first_in_first_out(connect: Callable[[], Any]) -> None:
    consumer, producer = connect(), connect()
    for number in range(50):
        publish(producer, number)
    with consuming(consumer, Q) as got:
        drain(consumer, 50)
    assert [got.get_nowait()[0] for _ in range(50)] == list(range(50))


def test_what_was_sent_before_anybody_declared_the_queue_is_kept(connect: Callable[[], Any]) -> None:
    publish(connect(), "early")
    consumer = connect()
    with consuming(consumer, Q) as got:
        drain(consumer)
        assert got.get_nowait()[0] == "early"


def test_a_waiting_consumer_wakes_when_a_message_is_put(connect: Callable[[], Any]) -> None:
    consumer, producer = connect(), connect()
    with consuming(consumer, Q), draining(consumer) as drained:
        publish(producer, "now")
        assert drained.result(LONG_SECONDS) < LONG_SECONDS / 2


def test_a_waiting_consumer_wakes_for_a_fanout(connect: Callable[[], Any]) -> None:
    fan = Exchange("fan", type="fanout")
    consumers = [connect() for _ in range(3)]
    with (
        consuming(consumers[0], Queue("a", fan)) as first,
        consuming(consumers[1], Queue("b", fan)) as second,
        draining(consumers[0]) as drained,
    ):
        publish(consumers[2], "all", exchange="fan", key="")
        assert drained.result(LONG_SECONDS) < LONG_SECONDS / 2
        drain(consumers[1])
        assert (first.get_nowait()[0], second.get_nowait()[0]) == ("all", "all")


def test_a_waiting_consumer_wakes_when_an_acknowledgement_makes_room(connect: Callable[[], Any]) -> None:
    consumer, producer = connect(), connect()
    with consuming(consumer, Q, prefetch=1) as got:
        publish(producer, 1)
        publish(producer, 2)
        drain(consumer)
        _, first = got.get_nowait()
        with draining(consumer) as drained:
            first.ack()
            assert drained.result(LONG_SECONDS) < LONG_SECONDS / 2
        assert got.get_nowait()[0] == 2


def test_a_rejection_makes_room_too(connect: Callable[[], Any]) -> None:
    consumer, producer = connect(), connect()
    with consuming(consumer, Q, prefetch=1) as got:
        publish(producer, 1)
        publish(producer, 2)
        drain(consumer)
        _, first = got.get_nowait()
        with draining(consumer) as drained:
            first.reject()
            assert drained.result(LONG_SECONDS) < LONG_SECONDS / 2
        assert got.get_nowait()[0] == 2


def test_a_larger_prefetch_count_wakes_the_consumer(connect: Callable[[], Any]) -> None:
    consumer, producer = connect(), connect()
    with consuming(consumer, Q, prefetch=1):
        publish(producer, 1)
        publish(producer, 2)
        drain(consumer)
        with draining(consumer) as drained:
            consumer.default_channel.basic_qos(0, 2, False)
            assert drained.result(LONG_SECONDS) < LONG_SECONDS / 2


def test_no_more_messages_are_delivered_than_prefetched(connect: Callable[[], Any]) -> None:
    consumer, producer = connect(), connect()
    for number in range(5):
        publish(producer, number)
    with consuming(consumer, Q, prefetch=2) as got:
        drain(consumer, 2)
        with pytest.raises(TimeoutError):
            consumer.drain_events(timeout=0)
        assert got.qsize() == 2


def test_without_messages_a_drain_ends_with_its_time(connect: Callable[[], Any]) -> None:
    consumer = connect()
    with consuming(consumer, Q):
        for timeout in (0, 0.01):
            with pytest.raises(TimeoutError):
                consumer.drain_events(timeout=timeout)


def test_closing_a_connection_ends_its_drain(connect: Callable[[], Any]) -> None:
    consumer = connect()
    consumer.connect()
    with draining(consumer) as drained:
        consumer.transport.close_connection(consumer.connection)
        assert isinstance(drained.exception(LONG_SECONDS), ConnectionResetError)


def test_each_message_goes_to_one_of_several_consumers(connect: Callable[[], Any]) -> None:
    producer, count = connect(), 400
    seen: Fifo[int] = Fifo()

    def take(body: int, message: Any) -> None:
        seen.put(body)
        message.ack()

    def consume(connection: Any) -> None:
        with connection.Consumer([Q], callbacks=[take]):
            while seen.qsize() < count:
                try:
                    connection.drain_events(timeout=0.05)
                except TimeoutError:
                    continue

    with ThreadPoolExecutor(4) as pool:
        consumers = [pool.submit(consume, connect()) for _ in range(4)]
        for number in range(count):
            publish(producer, number)
        for future in consumers:
            future.result(LONG_SECONDS)
    assert sorted(seen.get_nowait() for _ in range(count)) == list(range(count))


def test_unacknowledged_messages_come_back_to_the_front_in_order(connect: Callable[[], Any]) -> None:
    consumer, producer = connect(), connect()
    for number in range(4):
        publish(producer, number)
    with consuming(consumer, Q) as got:
        drain(consumer, 3)
        got.get_nowait()[1].ack()
    consumer.close()
    successor = connect()
    with consuming(successor, Q) as got:
        drain(successor, 3)
        again = [got.get_nowait() for _ in range(3)]
    assert [body for body, _ in again] == [1, 2, 3]
    assert [bool(message.delivery_info.get("redelivered")) for _, message in again] == [True, True, False]


def test_a_requeued_message_comes_back(connect: Callable[[], Any]) -> None:
    consumer, producer = connect(), connect()
    publish(producer, "again")
    with consuming(consumer, Q) as got:
        drain(consumer)
        got.get_nowait()[1].requeue()
        drain(consumer)
        assert got.get_nowait()[0] == "again"


def test_a_fanout_message_that_comes_back_goes_only_where_it_came_from(connect: Callable[[], Any]) -> None:
    fan = Exchange("fan", type="fanout")
    first, second = connect(), connect()
    with consuming(first, Queue("a", fan)) as got, consuming(second, Queue("b", fan)) as other:
        publish(second, "all", exchange="fan", key="")
        drain(first)
        drain(second)
        got.get_nowait()[1].requeue()
        drain(first)
        with pytest.raises(TimeoutError):
            second.drain_events(timeout=0)
        assert (got.qsize(), other.qsize()) == (1, 1)


def test_consumers_of_a_fanout_share_no_objects(connect: Callable[[], Any]) -> None:
    fan = Exchange("fan", type="fanout")
    first, second = connect(), connect()
    with consuming(first, Queue("a", fan)) as got, consuming(second, Queue("b", fan)) as other:
        publish(second, {"list": []}, exchange="fan", key="")
        drain(first)
        drain(second)
        (body, message), (body2, message2) = got.get_nowait(), other.get_nowait()
        body["list"].append(1)
        message.headers["changed"] = True
        assert body2 == {"list": []}
        assert "changed" not in message2.headers


def test_topics_are_matched(connect: Callable[[], Any]) -> None:
    topics = Exchange("topics", type="topic")
    consumer = connect()
    with consuming(consumer, Queue("workers", topics, routing_key="worker.#")) as got:
        for key in ("task.sent", "worker.online", "worker.heartbeat"):
            publish(consumer, key, exchange="topics", key=key)
        drain(consumer, 2)
        assert [got.get_nowait()[0] for _ in range(2)] == ["worker.online", "worker.heartbeat"]


def test_the_last_consumer_of_an_auto_delete_queue_takes_it_along(connect: Callable[[], Any]) -> None:
    fan = Exchange("fan", type="fanout")
    first, second, producer = connect(), connect(), connect()
    passing = Queue("passing", fan, auto_delete=True)
    with consuming(first, passing):
        with consuming(second, passing):
            pass
        assert producer.transport.store.has("passing")
    assert not producer.transport.store.has("passing")
    publish(producer, "nobody", exchange="fan", key="")
    assert not producer.transport.store.has("passing")


def test_a_queue_can_be_purged_measured_and_deleted(connect: Callable[[], Any]) -> None:
    connection = connect()
    for number in range(3):
        publish(connection, number)
    bound: Any = Q(connection.default_channel)
    assert bound.queue_declare(passive=True).message_count == 3
    assert bound.purge() == 3
    assert bound.get() is None
    bound.delete()
    with pytest.raises(connection.channel_errors):
        bound.queue_declare(passive=True)


def test_brokers_of_different_names_are_apart(connect: Callable[[], Any]) -> None:
    publish(connect(), "here")
    elsewhere = Connection("sandloom-memory://localhost/elsewhere")
    with elsewhere, consuming(elsewhere, Q), pytest.raises(TimeoutError):
        elsewhere.drain_events(timeout=0)


def test_reset_forgets_every_message(connect: Callable[[], Any]) -> None:
    publish(connect(), "old")
    memory.reset()
    consumer = connect()
    with consuming(consumer, Q), pytest.raises(TimeoutError):
        consumer.drain_events(timeout=0)


def test_publishers_and_bindings_from_many_threads_do_not_disturb_each_other(connect: Callable[[], Any]) -> None:
    direct = Exchange("direct", type="direct")
    consumer = connect()

    def bind_and_publish(number: int) -> None:
        connection = connect()
        mine = Queue(f"q-{number}", direct, routing_key=f"q-{number}", auto_delete=True)
        for _ in range(20):
            with consuming(connection, mine) as got:
                publish(connection, number, exchange="direct", key=f"q-{number}")
                publish(connection, number)
                drain(connection)
                assert got.get_nowait()[0] == number

    with consuming(consumer, Q) as got, ThreadPoolExecutor(8) as pool:
        list(pool.map(bind_and_publish, range(8)))
        drain(consumer, 160)
        assert got.qsize() == 160
    assert consumer.transport.state.exchanges["direct"]["table"] == []
