"""Ready means: the last ping came back."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any, cast

import pytest

from sandloom.broker.publisher import KombuPublisher
from sandloom.errors import Unavailable
from workers.self_ping import PING_TASK, SelfPing

LONG_SECONDS = 30.0
QUEUE = "sandloom.worker.w1"


class Broker:
    """Delivers to one node, or takes and loses, or is down."""

    def __init__(self) -> None:
        self.mode = "delivers"
        self.node: SelfPing | None = None
        self.sent = threading.Semaphore(0)

    def send(self, queue: str, task: str, kwargs: dict[str, Any]) -> str:
        assert (queue, task) == (QUEUE, PING_TASK)
        self.sent.release()
        if self.mode == "is down":
            raise Unavailable
        if self.mode == "delivers":
            assert self.node is not None
            self.node.heard(kwargs["token"])
        return "id"


class Scene:
    def __init__(self) -> None:
        self.broker = Broker()
        self.deaf = threading.Event()
        self.checks = 0
        self.ping = SelfPing(
            cast(KombuPublisher, self.broker), QUEUE, self._check, self.deaf.set,
            calm_seconds=0.01, heard_within_seconds=0.01, eager_within_seconds=0.01, deaf_seconds=0.05,
        )  # fmt: skip
        self.broker.node = self.ping

    def _check(self) -> list[str]:
        self.checks += 1
        return ["a warning"]

    def lost(self) -> bool:
        return self.ping.lost

    def turns(self, number: int = 3) -> None:
        """So many more pings were sent."""
        for _ in range(number):
            assert self.broker.sent.acquire(timeout=LONG_SECONDS)


@pytest.fixture
def scene() -> Iterator[Scene]:
    made = Scene()
    yield made
    made.ping.stop()


def test_a_node_is_not_ready_before_its_first_ping_came_back(scene: Scene) -> None:
    assert scene.ping.state() == {"ready": False, "round_trip_ms": None, "warnings": []}
    assert not scene.lost()
    scene.ping.start()
    assert scene.ping.wait_ready(LONG_SECONDS)
    assert not scene.lost()
    state = scene.ping.state()
    assert (state["ready"], state["warnings"]) == (True, ["a warning"])
    assert state["round_trip_ms"] >= 0


@pytest.mark.parametrize("mode", ["is down", "loses"])
def test_a_ping_that_does_not_come_back_ends_it_and_the_next_that_does_begins_it_again(scene: Scene, mode: str) -> None:
    scene.ping.start()
    assert scene.ping.wait_ready(LONG_SECONDS)
    scene.broker.mode = mode
    while scene.ping.ready:
        scene.turns(1)
    assert scene.lost()
    scene.broker.mode = "delivers"
    assert scene.ping.wait_ready(LONG_SECONDS)
    assert not scene.lost()
    assert scene.checks == 2  # what is there now may be another server


def test_a_broker_that_takes_and_never_delivers_makes_the_consumer_connect_anew(scene: Scene) -> None:
    scene.broker.mode = "loses"
    scene.ping.start()
    assert scene.deaf.wait(LONG_SECONDS)


def test_a_broker_that_is_down_is_not_a_deaf_consumer(scene: Scene) -> None:
    scene.broker.mode = "is down"
    scene.ping.start()
    scene.turns(20)
    assert not scene.deaf.is_set()
    assert not scene.ping.ready


def test_pings_of_others_count_for_nothing(scene: Scene) -> None:
    scene.broker.mode = "loses"
    scene.ping.start()
    scene.ping.heard("somebody else's")
    scene.ping.heard(None)
    scene.turns()
    assert not scene.ping.ready
