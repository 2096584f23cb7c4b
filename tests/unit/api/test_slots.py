"""Counted places."""

from __future__ import annotations

from api.slots import Slots
from sandloom.ids import ExecKey
from sandloom.streams import MemoryBus

KEY = ExecKey("default", "box", "run-1")


def test_no_more_places_than_the_limit_and_each_is_given_back_once() -> None:
    slots = Slots(2)
    first, second = slots.take(None), slots.take(None)
    assert first is not None
    assert second is not None
    assert slots.take(None) is None
    first.release()
    first.release()
    assert slots.in_use == 1
    with slots.take(None) or second:
        assert slots.take(None) is None
    assert slots.in_use == 1


def test_a_guest_leaves_places_for_the_others() -> None:
    slots = Slots(8)
    held = {tenant: [slots.take(tenant) for _ in range(8)] for tenant in ("greedy", "other", "third")}
    assert [sum(slot is not None for slot in found) for found in held.values()] == [4, 2, 1]
    first = held["greedy"][0]
    assert first is not None
    first.release()
    assert slots.take("greedy") is None
    assert slots.take("fourth") is not None
    assert slots.take(None) is not None


def test_closing_wakes_who_waits_and_gives_out_no_more() -> None:
    slots, bus = Slots(2), MemoryBus()
    slot = slots.take(None)
    assert slot is not None
    with bus.watch(KEY) as watch:
        slot.hold(watch)
        slots.close()
        assert watch.wait(timeout_seconds=60) is None
    assert slot.stopping
    assert slots.take(None) is None


def test_a_place_taken_just_before_the_close_is_woken_too() -> None:
    slots, bus = Slots(1), MemoryBus()
    slot = slots.take(None)
    assert slot is not None
    slots.close()
    with bus.watch(KEY) as watch:
        slot.hold(watch)
        assert watch.wait(timeout_seconds=60) is None
