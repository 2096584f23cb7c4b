"""What counts as a doorbell."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandloom.broker.message import RING_TASK, is_doorbell, ring_arguments, task_message
from sandloom.ids import ExecKey
from workers.doorbell import Doorbell, doorbell, read

JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=8), children, max_size=3),
    max_leaves=8,
)
KEY = ExecKey("t", "s", "e")
ARGUMENTS = ring_arguments(KEY, 1)


@dataclass
class Message:
    body: Any


def test_what_the_fleet_sends_is_a_doorbell() -> None:
    sent = task_message(RING_TASK, ARGUMENTS, task_id="an-id")
    assert is_doorbell(sent.headers)
    assert read(Message(sent.body)) == Doorbell(KEY, 1)
    assert read(Message(sent.body.encode())) == Doorbell(KEY, 1)


@given(st.sampled_from(sorted(ARGUMENTS)), JSON)
def test_a_doorbell_with_a_wrong_field_is_none(field: str, value: Any) -> None:
    good = type(value) is type(ARGUMENTS[field]) and (field != "v" or value == 1)
    assert (doorbell({**ARGUMENTS, field: value}) is not None) == good


@given(JSON)
def test_anything_else_is_no_doorbell(value: Any) -> None:
    assert doorbell(value) is None
    assert read(Message(json.dumps(value))) is None
    assert read(Message(value)) is None
    assert not is_doorbell(value)


@pytest.mark.parametrize("body", [b"\xff", "[" * 100_000, "1" * 10_000, json.dumps([[], {**ARGUMENTS, "x": 1}, {}])])
def test_a_body_that_cannot_be_used_is_no_doorbell(body: Any) -> None:
    assert read(Message(body)) is None
