"""Counted places."""

from __future__ import annotations

from api.slots import Slots
from sandloom.ids import ExecKey
from sandloom.streams import MemoryBus

KEY = ExecKey("default", "box", "run-1")


def test_no_more_places_than_the_limit_and_each_is_given_back_once() -> None:
    slots = Slots(2)
    first, second = slots.take(), slots.take()
    assert first is not None
    assert second is not None
    assert slots.take() is None
    first.release()
    first.release()
    assert slots.in_use == 1
    with slots.take() or second:
        assert slots.take() is None
    assert slots.in_use == 1


def test_closing_wakes_who_waits_and_gives_out_no_more() -> None:
    slots, bus = Slots(2), MemoryBus()
    slot = slots.take()
    assert slot is not None
    with bus.watch(KEY) as watch:
        slot.hold(watch)
        slots.close()
        assert watch.wait(timeout_seconds=60) is None
    assert slot.stopping
    assert slots.take() is None


def test_a_place_taken_just_before_the_close_is_woken_too() -> None:
    slots, bus = Slots(1), MemoryBus()
    slot = slots.take()
    assert slot is not None
    slots.close()
    with bus.watch(KEY) as watch:
        slot.hold(watch)
        assert watch.wait(timeout_seconds=60) is None
