"""Questions to workers and their answers: genuine ones count, nothing else, and nothing is left behind."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from kombu import Connection

from sandloom.broker.control import BusControl, reply
from sandloom.broker.envelope import Envelope, SigningKey, Verifier, fleet_key, new_op_id, operator_key, seal
from sandloom.broker.publisher import KombuPublisher
from sandloom.broker.queues import broker_url, queue, transport_options, worker_queue
from sandloom.contracts.ports import WorkerControl
from sandloom.errors import (
    BodyTooLarge,
    FileMissing,
    OperationExpired,
    OperationSeen,
    SandloomError,
    Unavailable,
    ValidationFailed,
    WorkerLost,
)
from sandloom.streams import MemoryBus, RedisBus, open_bus
from tests.acceptance.worker_fleet import until
from tests.services.account import free_port

FLEET = fleet_key("a secret key")
NAMESPACE = "blue"
QUEUE = worker_queue("w-1")
TASK = "sandloom.files.read"
LONG_SECONDS = 60.0

Answer = Callable[["Node", Envelope, dict[str, Any]], None]


class Node:
    """The worker's side: takes envelopes from its queue and answers each by ``answer`` in a thread of its own."""

    def __init__(self, url: str, bus_url: str, bus: MemoryBus | RedisBus, answer: Answer) -> None:
        self.bus = bus
        self.url = url
        self.answer = answer
        self.heard: list[Envelope] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        options = transport_options(self.url, NAMESPACE, consume=True)
        with (
            Connection(broker_url(self.url), transport_options=options) as connection,
            connection.Consumer([queue(QUEUE)], callbacks=[self._take]),
        ):
            while not self._stopping.is_set():
                try:
                    connection.drain_events(timeout=0.1)
                except TimeoutError:
                    continue

    def _take(self, body: Any, message: Any) -> None:
        message.ack()
        raw = body[1]["envelope"]
        try:
            envelope = Verifier({"fleet": FLEET}).open(raw, task=message.headers["task"])
        except OperationExpired:
            return
        self.heard.append(envelope)
        self.answer(self, envelope, raw)

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(LONG_SECONDS)


def echo(node: Node, envelope: Envelope, raw: dict[str, Any]) -> None:
    reply(node.bus, envelope, FLEET, result={"tenant": envelope.tenant_id, **envelope.args})


@pytest.fixture(params=["memory", pytest.param("redis", marks=pytest.mark.server)])
def urls(request: pytest.FixtureRequest) -> tuple[str, str]:
    """Of the broker and of the bus."""
    if request.param == "memory":
        return f"sandloom-memory://localhost/{uuid.uuid4().hex}", "memory://"
    url: str = request.getfixturevalue("redis_url")
    return url, url


def patient_bus(url: str, namespace: str) -> RedisBus:
    """Which loses nothing when Redis stands still for a moment."""
    return RedisBus(url, namespace, timeout_seconds=LONG_SECONDS)


class Setup:
    """One API process and one worker."""

    def __init__(self, urls: tuple[str, str]) -> None:
        self.url, bus_url = urls
        namespace = f"{NAMESPACE}-{uuid.uuid4().hex}"
        self.bus = open_bus(bus_url, namespace) if bus_url == "memory://" else patient_bus(bus_url, namespace)
        self.worker_bus = self.bus if isinstance(self.bus, MemoryBus) else patient_bus(bus_url, namespace)
        self.publisher = KombuPublisher(self.url, namespace=NAMESPACE, timeout_seconds=LONG_SECONDS)
        self.control = BusControl(self.publisher, self.bus, FLEET)
        until(lambda: bool(self.bus.connected))
        self.node: Node | None = None
        self.bus_url = bus_url

    def worker(self, answer: Answer) -> Node:
        self.node = Node(self.url, self.bus_url, self.worker_bus, answer)
        return self.node

    def call(self, timeout_seconds: float = LONG_SECONDS, **options: Any) -> dict[str, Any]:
        return self.control.call(QUEUE, TASK, "acme", {"path": "/a"}, timeout_seconds=timeout_seconds, **options)

    def close(self) -> None:
        if self.node is not None:
            self.node.stop()
        self.publisher.close()
        self.bus.close()
        self.worker_bus.close()


@pytest.fixture
def setup(urls: tuple[str, str]) -> Iterator[Setup]:
    made = Setup(urls)
    yield made
    assert made.control.pending == 0
    made.close()


def test_a_call_brings_back_the_result(setup: Setup) -> None:
    node = setup.worker(echo)
    assert setup.call() == {"tenant": "acme", "path": "/a"}
    [envelope] = node.heard
    assert (envelope.key_id, envelope.tenant_id, envelope.task) == ("fleet", "acme", TASK)
    assert 0 < envelope.remaining_seconds <= LONG_SECONDS


def test_it_is_a_worker_control(setup: Setup) -> None:
    control: WorkerControl = setup.control
    assert control.post(QUEUE, TASK, "acme", {}, ttl_seconds=5)


def test_a_problem_is_raised_as_the_exception_it_was(setup: Setup) -> None:
    setup.worker(lambda node, envelope, raw: reply(node.bus, envelope, FLEET, error=FileMissing("no /a", path="/a")))
    with pytest.raises(FileMissing) as caught:
        setup.call()
    assert (caught.value.detail, caught.value.extra) == ("no /a", {"path": "/a"})


def test_without_an_answer_in_time_the_worker_counts_as_lost(setup: Setup) -> None:
    with pytest.raises(WorkerLost):
        setup.call(timeout_seconds=0.05)


def test_an_answer_that_comes_too_late_is_ignored(setup: Setup) -> None:
    kept: list[Envelope] = []
    answered = threading.Event()

    def keep(node: Node, envelope: Envelope, raw: dict[str, Any]) -> None:
        kept.append(envelope)
        answered.set()

    node = setup.worker(keep)
    allowed_seconds = 0.25
    while not answered.is_set():
        allowed_seconds *= 2
        with pytest.raises(WorkerLost):
            setup.call(timeout_seconds=allowed_seconds)
    node.answer = echo
    echo(node, kept[0], {})
    setup.call()
    assert setup.control.ignored["unknown"] == 1


def forged_with_another_key(envelope: Envelope) -> dict[str, Any]:
    return _sealed(fleet_key("another secret"), envelope)


def signed_by_a_tenant(envelope: Envelope) -> dict[str, Any]:
    return _sealed(SigningKey("key-1", b"x" * 32, tenant_id="acme"), envelope)


def changed_after_signing(envelope: Envelope) -> dict[str, Any]:
    message = _sealed(FLEET, envelope)
    return {**message, "args": {"task": TASK, "result": {"forged": "differently"}}}


def for_another_tenant(envelope: Envelope) -> dict[str, Any]:
    return _sealed(FLEET, envelope, tenant_id="other")


def for_another_task(envelope: Envelope) -> dict[str, Any]:
    return _sealed(FLEET, envelope, args={"task": "sandloom.connect", "result": {}})


def not_a_reply(envelope: Envelope) -> dict[str, Any]:
    return _sealed(FLEET, envelope, task=TASK)


def without_a_signature(envelope: Envelope) -> dict[str, Any]:
    return {"op_id": envelope.op_id, "args": {"result": {}}}


def _sealed(key: SigningKey, envelope: Envelope, **changes: Any) -> dict[str, Any]:
    options: dict[str, Any] = {
        "tenant_id": envelope.tenant_id,
        "task": "reply",
        "args": {"task": TASK, "result": {"forged": True}},
        "op_id": envelope.op_id,
        "deadline_seconds_from_now": LONG_SECONDS,
    }
    return seal(key, **{**options, **changes})


@pytest.mark.parametrize(
    ("forge", "why"),
    [
        (forged_with_another_key, "forged"),
        (signed_by_a_tenant, "forged"),
        (changed_after_signing, "forged"),
        (not_a_reply, "forged"),
        (without_a_signature, "forged"),
        (for_another_tenant, "mismatched"),
        (for_another_task, "mismatched"),
    ],
)
def test_only_the_fleets_own_answer_to_this_question_counts(
    setup: Setup, forge: Callable[[Envelope], dict[str, Any]], why: str
) -> None:
    def attack_then_answer(node: Node, envelope: Envelope, raw: dict[str, Any]) -> None:
        assert envelope.reply_to is not None
        node.bus.publish_reply(envelope.reply_to, forge(envelope))
        echo(node, envelope, raw)

    setup.worker(attack_then_answer)
    assert setup.call() == {"tenant": "acme", "path": "/a"}
    assert setup.control.ignored == {why: 1}


@pytest.mark.parametrize("body", [{}, {"op_id": None}, {"op_id": ["a"]}, {"op_id": "f" * 32}])
def test_what_nobody_asked_for_is_ignored_and_counted(setup: Setup, body: dict[str, Any]) -> None:
    setup.worker(echo)
    setup.worker_bus.publish_reply(setup.control._reply_channel, body)
    setup.call()
    assert setup.control.ignored == {"unknown": 1}


def test_many_calls_from_many_threads_each_get_their_own_answer(setup: Setup) -> None:
    setup.worker(echo)

    def ask(number: int) -> Any:
        return setup.control.call(QUEUE, TASK, "acme", {"n": number}, timeout_seconds=LONG_SECONDS)["n"]

    with ThreadPoolExecutor(32) as pool:
        assert list(pool.map(ask, range(300))) == list(range(300))
    assert not setup.control.ignored


def test_an_operation_id_can_be_given_but_not_used_twice_at_once(setup: Setup) -> None:
    op_id = new_op_id()

    def ask_again(node: Node, envelope: Envelope, raw: dict[str, Any]) -> None:
        with pytest.raises(OperationSeen):
            setup.call(op_id=op_id)
        echo(node, envelope, raw)

    node = setup.worker(ask_again)
    setup.call(op_id=op_id)
    assert [envelope.op_id for envelope in node.heard] == [op_id]


def test_a_post_wants_no_answer(setup: Setup) -> None:
    heard = threading.Event()

    def answer(node: Node, envelope: Envelope, raw: dict[str, Any]) -> None:
        echo(node, envelope, raw)
        heard.set()

    node = setup.worker(answer)
    assert setup.control.post(QUEUE, "sandloom.cancel", "acme", {"exec_id": "exec-1"}, ttl_seconds=30)
    assert heard.wait(LONG_SECONDS)
    assert node.heard[0].reply_to is None
    assert not setup.control.ignored


def test_a_large_answer_travels_and_a_too_large_one_says_so(setup: Setup) -> None:
    def answer(node: Node, envelope: Envelope, raw: dict[str, Any]) -> None:
        reply(node.bus, envelope, FLEET, result={"content": "x" * envelope.args["size"]})

    setup.worker(answer)

    def ask(size: int) -> int:
        return len(setup.control.call(QUEUE, TASK, "acme", {"size": size}, timeout_seconds=LONG_SECONDS)["content"])

    assert ask(400_000) == 400_000
    with pytest.raises(BodyTooLarge):
        ask(2_000_000)


def test_an_answer_that_is_not_json_is_an_internal_error_and_no_silence(setup: Setup) -> None:
    setup.worker(lambda node, envelope, raw: reply(node.bus, envelope, FLEET, result={"content": b"bytes"}))
    with pytest.raises(SandloomError) as caught:
        setup.call()
    assert caught.value.code == "SANDBOX_INTERNAL_ERROR"


def test_arguments_that_are_not_json_are_refused_before_anything_is_sent(setup: Setup) -> None:
    with pytest.raises(ValidationFailed):
        setup.control.call(QUEUE, TASK, "acme", {"data": b"bytes"}, timeout_seconds=1)


def test_a_request_of_another_key_is_never_answered_over_the_bus() -> None:
    bus = MemoryBus()
    answers: list[dict[str, Any]] = []
    channel = bus.on_reply(answers.append)
    for key_id in ("operator", "key-1"):
        request = Envelope(key_id, "acme", TASK, {}, new_op_id(), 1e12, channel)
        reply(bus, request, FLEET, result={})
    reply(bus, Envelope("fleet", "acme", TASK, {}, new_op_id(), 1e12, None), FLEET, result={})
    assert answers == []
    reply(bus, Envelope("fleet", "acme", TASK, {}, new_op_id(), 1e12, channel), FLEET, result={})
    assert len(answers) == 1


def test_without_a_broker_a_call_is_unavailable_and_a_post_not_sent() -> None:
    bus = MemoryBus()
    publisher = KombuPublisher(f"redis://127.0.0.1:{free_port()}/0")
    control = BusControl(publisher, bus, FLEET)
    with pytest.raises(Unavailable):
        control.call(QUEUE, TASK, "acme", {}, timeout_seconds=LONG_SECONDS)
    assert control.post(QUEUE, TASK, "acme", {}, ttl_seconds=LONG_SECONDS) is False
    assert control.pending == 0


def test_without_a_bus_nothing_is_asked_since_no_answer_could_come() -> None:
    url = f"sandloom-memory://localhost/{uuid.uuid4().hex}"
    bus = RedisBus(f"redis://127.0.0.1:{free_port()}/0", NAMESPACE)
    publisher = KombuPublisher(url)
    control = BusControl(publisher, bus, FLEET)
    with pytest.raises(Unavailable):
        control.call(QUEUE, TASK, "acme", {}, timeout_seconds=LONG_SECONDS)
    with Connection(url) as connection:
        assert queue(QUEUE)(connection.default_channel).get() is None
    bus.close()
    publisher.close()


def test_the_operators_key_does_not_open_as_the_fleets() -> None:
    assert operator_key("a secret key").secret != FLEET.secret
