"""Lanes: turns, bounds, one run per exec, an orderly end."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from sandloom.ids import ExecKey
from workers.lanes import CommandLane, ControlLane, Placed


class Gate:
    """A job that says when it runs and waits to be let through."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.open = threading.Event()

    def __call__(self) -> None:
        self.entered.set()
        assert self.open.wait(10)


def key(sandbox: str, name: str, tenant: str = "default") -> ExecKey:
    return ExecKey(tenant, sandbox, name)


@pytest.fixture
def room() -> threading.Event:
    return threading.Event()


@pytest.fixture
def lane(room: threading.Event) -> Iterator[CommandLane]:
    lane = CommandLane(1, 4, room.set)
    yield lane
    lane.close()


def occupy(lane: CommandLane) -> Gate:
    gate = Gate()
    assert lane.submit(key("holder", "gate"), gate) is Placed.ACCEPTED
    assert gate.entered.wait(10)
    return gate


def test_sandboxes_take_turns(lane: CommandLane) -> None:
    gate = occupy(lane)
    order: list[str] = []
    done = threading.Event()
    for sandbox, name in (("a", "a1"), ("a", "a2"), ("a", "a3"), ("b", "b1")):
        lane.submit(key(sandbox, name), lambda name=name: order.append(name))  # type: ignore[misc]
    lane.submit(key("c", "end"), done.set, must_run=True)
    gate.open.set()
    assert done.wait(10)
    lane.close()
    assert order[:2] == ["a1", "b1"]


@pytest.mark.parametrize(("tenant", "sandbox", "ahead"), [("modest", "own", 1), ("greedy", "own", 4)])
def test_a_thousand_commands_of_one_let_anothers_only_one_go_ahead_of_them(
    tenant: str, sandbox: str, ahead: int
) -> None:
    """Ahead of it is at most one command of every other tenant, and one of every other sandbox of its own tenant."""
    lane = CommandLane(1, 2000, lambda: None)
    gate = occupy(lane)
    order: list[str] = []
    done = threading.Event()

    def only() -> None:
        order.append("only")
        done.set()

    for number in range(1000):
        greedy = key(f"box-{number % 4}", f"run-{number}", "greedy")
        lane.submit(greedy, lambda: order.append("greedy"))
    lane.submit(key(sandbox, "only", tenant), only)
    gate.open.set()
    assert done.wait(10)
    lane.close()
    assert lane.join(10)
    assert order.index("only") <= ahead


def test_a_tenant_of_many_sandboxes_cannot_keep_others_out_of_the_lane(lane: CommandLane) -> None:
    gate = occupy(lane)
    placed = [lane.submit(key(f"box-{number}", "x", "greedy"), lambda: None) for number in range(12)]
    assert placed == [Placed.ACCEPTED] * 8 + [Placed.FULL] * 4
    assert lane.submit(key("box", "x", "modest"), lambda: None) is Placed.ACCEPTED
    gate.open.set()


def test_an_exec_is_in_the_lane_once(lane: CommandLane) -> None:
    gate = occupy(lane)
    ran: list[str] = []
    assert lane.submit(key("a", "x"), lambda: ran.append("first")) is Placed.ACCEPTED
    assert lane.submit(key("a", "x"), lambda: ran.append("second")) is Placed.DUPLICATE
    assert lane.submit(key("holder", "gate"), lambda: ran.append("again")) is Placed.DUPLICATE
    done = threading.Event()
    lane.submit(key("b", "end"), done.set)
    gate.open.set()
    assert done.wait(10)
    assert ran == ["first"]


def test_a_job_that_must_run_follows_the_one_for_the_same_exec(lane: CommandLane) -> None:
    gate = occupy(lane)
    ran: list[str] = []
    done = threading.Event()

    def second() -> None:
        ran.append("second")
        done.set()

    lane.submit(key("a", "x"), lambda: ran.append("first"))
    assert lane.submit(key("a", "x"), second, must_run=True) is Placed.ACCEPTED
    gate.open.set()
    assert done.wait(10)
    assert ran == ["first", "second"]


def test_a_greedy_sandbox_fills_the_lane_for_itself_only(lane: CommandLane, room: threading.Event) -> None:
    gate = occupy(lane)
    placed = [lane.submit(key("greedy", f"g{n}"), lambda: None) for n in range(6)]
    assert placed == [Placed.ACCEPTED] * 4 + [Placed.FULL] * 2
    assert lane.submit(key("modest", "m"), lambda: None) is Placed.ACCEPTED
    assert not room.is_set()
    gate.open.set()
    assert room.wait(10)


def test_sandboxes_that_do_not_exist_cannot_grow_the_lane_without_end(lane: CommandLane) -> None:
    gate = occupy(lane)
    placed = [lane.submit(key(f"forged{n}", "x", f"forged{n}"), lambda: None) for n in range(50)]
    assert placed.count(Placed.ACCEPTED) == 16
    gate.open.set()


def test_as_many_commands_run_at_once_as_there_are_slots() -> None:
    lane = CommandLane(3, 100, lambda: None)
    gates = [Gate() for _ in range(4)]
    for number, gate in enumerate(gates):
        lane.submit(key("a", f"x{number}"), gate)
    for gate in gates[:3]:
        assert gate.entered.wait(10)
    assert (lane.running, lane.waiting) == (3, 1)
    gates[0].open.set()
    assert gates[3].entered.wait(10)
    for gate in gates:
        gate.open.set()
    lane.close()
    assert lane.join(10)


def test_a_job_that_fails_does_not_end_the_lane(lane: CommandLane) -> None:
    def fail() -> None:
        raise RuntimeError("broken")

    done = threading.Event()
    lane.submit(key("a", "x"), fail)
    lane.submit(key("a", "y"), done.set)
    assert done.wait(10)


def test_a_closed_lane_forgets_what_waits_and_lets_run_what_runs(lane: CommandLane) -> None:
    gate = occupy(lane)
    ran: list[str] = []
    lane.submit(key("a", "x"), lambda: ran.append("x"))
    lane.close()
    assert lane.submit(key("a", "y"), lambda: ran.append("y")) is Placed.CLOSED
    assert not lane.join(0)
    gate.open.set()
    assert lane.join(10)
    assert ran == []


def test_a_control_lane_does_what_waits_before_it_ends() -> None:
    lane = ControlLane("control", 1, 2)
    gate = Gate()
    ran: list[int] = []
    assert lane.submit(gate) is Placed.ACCEPTED
    assert gate.entered.wait(10)
    assert [lane.submit(lambda n=n: ran.append(n)) for n in range(3)] == [  # type: ignore[misc]
        Placed.ACCEPTED, Placed.ACCEPTED, Placed.FULL,
    ]  # fmt: skip
    lane.close()
    assert lane.submit(lambda: None) is Placed.CLOSED
    gate.open.set()
    assert lane.join(10)
    assert ran == [0, 1]
