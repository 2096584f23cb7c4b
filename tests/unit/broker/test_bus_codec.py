"""Bytes from the bus are decoded or refused, whatever they are."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandloom.contracts.ports import Head
from sandloom.ids import ExecKey
from sandloom.streams import codec

KEY = ExecKey("default", "sandbox-1", "exec-1")


NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=50)


@given(st.tuples(NAMES, NAMES, NAMES), st.integers(0, 2**63 - 1), st.booleans())
def test_a_head_comes_out_as_it_went_in(parts: tuple[str, str, str], seq: int, terminal: bool) -> None:
    key = ExecKey(*parts)
    assert codec.decode_head(codec.encode_head(key, seq, terminal)) == (key, Head(seq, terminal))


@pytest.mark.parametrize("seq", ["", "-1", "+1", " 1", "1.5", "1_0", "a", "٣", "1" * 20])
def test_a_number_that_is_none_is_refused(seq: str) -> None:
    with pytest.raises(codec.BusMessageInvalid):
        codec.decode_head("\0".join((*KEY, seq, "0")).encode())


@pytest.mark.parametrize("rest", ["1", "1\0", "1\x002", "1\0true", "1\x000\x000"])
def test_a_head_of_another_shape_is_refused(rest: str) -> None:
    with pytest.raises(codec.BusMessageInvalid):
        codec.decode_head("\0".join((*KEY, rest)).encode())


@given(st.binary() | st.text().map(str.encode) | st.recursive(st.none(), st.lists).map(json.dumps).map(str.encode))
def test_no_bytes_raise_anything_else(data: bytes) -> None:
    with pytest.raises(codec.BusMessageInvalid):
        codec.decode_head(data)


@pytest.mark.parametrize("data", [b"[" * 100_000, b'{"a":' * 100_000, b"1" * 5000, b"\xff\xfe{}"])
def test_nesting_numbers_and_encodings_are_refused(data: bytes) -> None:
    with pytest.raises(codec.BusMessageInvalid):
        codec.decode_reply(data)


def test_a_message_over_its_bound_is_refused_before_it_is_parsed() -> None:
    with pytest.raises(codec.BusMessageInvalid):
        codec.decode_head(codec.encode_head(ExecKey("a" * codec.MAX_HEAD_BYTES, "b", "c"), 1, False))
    with pytest.raises(codec.BusMessageInvalid):
        codec.encode_reply({"a": "x" * codec.MAX_REPLY_BYTES})


@pytest.mark.parametrize("body", [{"a": b"bytes"}, {"a": math.nan}, {"a": object()}])
def test_a_reply_that_is_not_json_is_refused(body: dict[str, object]) -> None:
    with pytest.raises(codec.BusMessageInvalid):
        codec.encode_reply(body)


@pytest.mark.parametrize(
    "name", ["", "heads", "reply:", "reply:" + "0" * 31, "reply:" + "G" * 32, "x:reply:" + "0" * 32]
)
def test_only_reply_channels_are_reply_channels(name: str) -> None:
    assert codec.is_reply_channel("reply:" + "0f" * 16)
    assert not codec.is_reply_channel(name)
