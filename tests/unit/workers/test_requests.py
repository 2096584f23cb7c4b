"""What a message may be, before anything is done with it."""

from __future__ import annotations

import io
import json
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandloom.broker.api_keys import KeyMint
from sandloom.broker.envelope import SigningKey, Verifier, fleet_key, operator_key, seal
from sandloom.contracts.refusals import validated
from sandloom.db import open_database
from sandloom.errors import (
    DirectTasksOff,
    EnvelopeRefused,
    MalformedRequest,
    RangeNotSatisfiable,
    SandloomError,
    ValidationFailed,
)  # fmt: skip
from sandloom.tenants.keys import Keys as TenantKeys
from workers.context import Keys
from workers.counters import counters
from workers.pool import Delivery
from workers.reception import drop
from workers.tasks import node_lanes
from workers.tasks.files import WriteArgs
from workers.tasks.requests import PUBLIC, verify
from workers.transfers import body_pieces, parse_range

JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=8), children, max_size=3),
    max_leaves=8,
)
FLEET = fleet_key("secret")
OPERATOR = operator_key("token")


class Message:
    """What ``drop`` needs of a delivery."""

    task, queue = "sandloom.files.read", "sandloom.worker.w"

    def __init__(self) -> None:
        self.dropped = False

    def drop(self) -> None:
        self.dropped = True


def test_a_dropped_message_is_counted() -> None:
    before = counters.snapshot().get("messages_dropped", 0)
    message = Message()
    drop(cast(Delivery, message), "test")
    assert message.dropped
    assert counters.snapshot()["messages_dropped"] == before + 1


def keys(direct: bool = True) -> Keys:
    of_tenants = TenantKeys(open_database("sqlite://"), KeyMint("secret"))
    return Keys(FLEET, Verifier({"fleet": FLEET, "operator": OPERATOR}), direct, of_tenants)


def sealed(key: SigningKey) -> dict[str, Any]:
    return {"envelope": seal(key, tenant_id="default", task="sandloom.connect", args={}, deadline_seconds_from_now=60)}


@given(JSON)
def test_nothing_but_an_envelope_is_verified(value: Any) -> None:
    for kwargs in ({"envelope": value}, {"other": value}):
        with pytest.raises(SandloomError):
            verify(keys(), "sandloom.connect", kwargs)


def test_a_signed_message_is_for_one_task_and_comes_alone() -> None:
    assert verify(keys(), "sandloom.connect", sealed(OPERATOR)).key_id == "operator"
    with pytest.raises(EnvelopeRefused):
        verify(keys(), "sandloom.release", sealed(OPERATOR))
    with pytest.raises(EnvelopeRefused):
        verify(keys(), "sandloom.connect", sealed(OPERATOR) | {"extra": 1})


def test_switched_off_direct_tasks_leave_only_the_fleet() -> None:
    assert verify(keys(direct=False), "sandloom.connect", sealed(FLEET)).key_id == "fleet"
    with pytest.raises(DirectTasksOff):
        verify(keys(direct=False), "sandloom.connect", sealed(OPERATOR))


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_every_public_task_refuses_unknown_arguments(name: str) -> None:
    with pytest.raises(ValidationFailed):
        validated(PUBLIC[name].model, {"no_such_argument": 1})
    assert name in node_lanes()


def test_a_refused_argument_does_not_show_the_others() -> None:
    with pytest.raises(ValidationFailed) as caught:
        validated(
            WriteArgs, {"sandbox_id": "box", "generation": 0, "path": "/workspace/a", "content_base64": "c2VjcmV0"}
        )
    text = json.dumps(caught.value.to_problem())
    assert "generation" in text
    assert "c2VjcmV0" not in text


@pytest.mark.parametrize(
    ("header", "span"),
    [
        (None, None), ("bytes=0-0", (0, 1)), ("bytes=2-4", (2, 3)), ("bytes=8-", (8, 2)), ("bytes=-3", (7, 3)),
        ("bytes=5-100", (5, 5)), ("bytes=-100", (0, 10)), ("bytes=1-2,4-5", None), ("items=1-2", None),
        ("bytes=-", None), ("bytes=4-2", None), ("nonsense", None),
    ],
)  # fmt: skip
def test_a_single_range_is_taken_and_other_forms_are_ignored(header: str | None, span: tuple[int, int] | None) -> None:
    assert parse_range(header, 10) == span


@pytest.mark.parametrize(
    ("header", "size"), [("bytes=10-", 10), ("bytes=99-100", 10), ("bytes=-0", 10), ("bytes=0-", 0)]
)
def test_a_range_outside_of_the_file_is_refused(header: str, size: int) -> None:
    with pytest.raises(RangeNotSatisfiable):
        parse_range(header, size)


def test_a_body_that_ends_early_is_an_error() -> None:
    whole = {"CONTENT_LENGTH": "5", "wsgi.input": io.BytesIO(b"12345")}
    assert b"".join(body_pieces(whole)) == b"12345"
    with pytest.raises(MalformedRequest):
        list(body_pieces({"CONTENT_LENGTH": "6", "wsgi.input": io.BytesIO(b"12345")}))
