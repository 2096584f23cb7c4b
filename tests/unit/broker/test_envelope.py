"""Only the very message that a known key signed, for this task and in time, is opened."""

from __future__ import annotations

import hmac
import json
import math
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from hypothesis import given
from hypothesis import strategies as st

from sandloom.broker import envelope as module
from sandloom.broker.envelope import (
    MAX_TTL_SECONDS,
    Envelope,
    SigningKey,
    Verifier,
    canonical,
    fleet_key,
    new_op_id,
    operator_key,
    seal,
)
from sandloom.errors import EnvelopeRefused, OperationExpired, ValidationFailed

FLEET = fleet_key("a secret key")
TENANT = SigningKey("key-1", b"s" * 32, tenant_id="acme")
VERIFIER = Verifier({FLEET.key_id: FLEET, TENANT.key_id: TENANT})

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
arguments = st.dictionaries(st.text(), json_values, max_size=5)


def sealed(**changes: Any) -> dict[str, Any]:
    options: dict[str, Any] = {
        "tenant_id": "acme",
        "task": "sandloom.exec",
        "args": {"argv": ["true"], "n": 1},
        "deadline_seconds_from_now": 60.0,
        "reply_to": "reply:" + "0" * 32,
    }
    return seal(TENANT, **{**options, **changes})


def refuses(message: object, verifier: Verifier = VERIFIER, task: str = "sandloom.exec") -> bool:
    with pytest.raises(EnvelopeRefused):
        verifier.open(message, task=task)
    return True


@given(arguments)
def test_what_was_sealed_is_opened_also_after_a_trip_as_json(args: dict[str, Any]) -> None:
    message = sealed(args=args)
    for copy in (message, json.loads(json.dumps(message))):
        opened = VERIFIER.open(copy, task="sandloom.exec")
        # NaN-free JSON compares by its text: -0.0 and 0.0, 1 and 1.0 are different texts.
        assert canonical(opened.args) == canonical(args)
        assert (opened.tenant_id, opened.key_id, opened.op_id) == ("acme", "key-1", message["op_id"])


def test_the_envelope_tells_its_deadline() -> None:
    opened = VERIFIER.open(sealed(deadline_seconds_from_now=60), task="sandloom.exec")
    assert 0 < opened.remaining_seconds <= 60
    assert opened.deadline_us == int(opened.deadline * 1_000_000)


OTHER_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "v": st.integers() | st.just(True) | st.just(1.0),
    "key_id": st.text() | st.sampled_from(["fleet", "key-1", "operator"]),
    "tenant_id": st.text() | st.sampled_from(["default", "acme2"]),
    "task": st.text() | st.sampled_from(["sandloom.exec", "sandloom.release"]),
    "args": arguments | json_values,
    "op_id": st.text() | st.text("0123456789abcdef", min_size=32, max_size=32),
    "deadline": st.floats() | st.integers(),
    "reply_to": st.none() | st.text() | st.text("0123456789abcdef", min_size=32, max_size=32).map("reply:".__add__),
    "sig": st.text() | st.text("0123456789abcdef", min_size=64, max_size=64),
}


@pytest.mark.parametrize("field", sorted(OTHER_VALUES))
@given(st.data())
def test_every_change_of_a_single_field_is_refused(field: str, data: st.DataObject) -> None:
    message = sealed()
    value = data.draw(OTHER_VALUES[field])
    same_type = type(value) is type(message[field])
    if same_type and (value == message[field] or (field == "args" and canonical(value) == canonical(message[field]))):
        return
    assert refuses({**message, field: value})


@pytest.mark.parametrize("field", sorted(OTHER_VALUES))
def test_a_missing_field_is_refused(field: str) -> None:
    message = sealed()
    del message[field]
    assert refuses(message)


def test_an_additional_field_is_refused() -> None:
    assert refuses({**sealed(), "admin": True})


@given(json_values | st.binary() | st.dictionaries(st.sampled_from(sorted(OTHER_VALUES)), json_values))
def test_no_shape_raises_anything_else(message: object) -> None:
    assert refuses(message)


def nested(depth: int) -> dict[str, Any]:
    inner: dict[str, Any] = {}
    for _ in range(depth):
        inner = {"a": inner}
    return inner


def circular() -> dict[str, Any]:
    loop: dict[str, Any] = {}
    loop["self"] = loop
    return loop


@pytest.mark.parametrize(
    "args",
    [
        nested(100_000),
        circular(),
        {"n": math.nan},
        {"n": math.inf},
        {"n": 10**5000},
        {"n": b"bytes"},
        {"n": {1: 2, "1": 3}},
        {"n": object()},
        {"\ud800": "\udfff"},
    ],
    ids=["nesting", "circle", "nan", "inf", "huge-integer", "bytes", "mixed-keys", "object", "surrogates"],
)
def test_hostile_arguments_are_refused_when_opened_and_invalid_when_sealed(args: dict[str, Any]) -> None:
    assert refuses({**sealed(), "args": args})
    if list(args) != ["\ud800"]:
        with pytest.raises(ValidationFailed):
            sealed(args=args)


def test_lone_surrogates_survive_the_trip() -> None:
    message = json.loads(json.dumps(sealed(args={"path": "\ud800"})))
    assert VERIFIER.open(message, task="sandloom.exec").args == {"path": "\ud800"}


@pytest.mark.parametrize("deadline", [math.nan, math.inf, -math.inf, True, 10**400, -(10**400), "1", None])
def test_a_deadline_that_is_no_time_is_refused_even_with_a_fitting_signature(deadline: Any) -> None:
    body = {**sealed(), "deadline": deadline}
    del body["sig"]
    try:
        signature = module._signature(TENANT, body)
    except ValueError:
        signature = "0" * 64
    assert refuses({**body, "sig": signature})


@pytest.mark.parametrize("seconds", [0, -1, MAX_TTL_SECONDS + 1, math.nan, math.inf])
def test_a_deadline_outside_the_bounds_is_not_sealed(seconds: float) -> None:
    with pytest.raises(ValidationFailed):
        sealed(deadline_seconds_from_now=seconds)


def test_after_its_deadline_a_genuine_message_is_expired(monkeypatch: pytest.MonkeyPatch) -> None:
    message = sealed(deadline_seconds_from_now=60)
    monkeypatch.setattr(module, "wall_seconds", lambda: message["deadline"])
    with pytest.raises(OperationExpired):
        VERIFIER.open(message, task="sandloom.exec")


def test_after_its_deadline_a_forged_message_is_refused_not_expired(monkeypatch: pytest.MonkeyPatch) -> None:
    message = {**sealed(), "sig": "0" * 64}
    monkeypatch.setattr(module, "wall_seconds", lambda: message["deadline"] + 1)
    assert refuses(message)


def test_a_deadline_far_ahead_is_refused_even_when_signed(monkeypatch: pytest.MonkeyPatch) -> None:
    message = sealed(deadline_seconds_from_now=60)
    monkeypatch.setattr(module, "wall_seconds", lambda: message["deadline"] - 8 * 86_400)
    assert refuses(message)


def test_a_message_for_one_task_does_not_open_as_another() -> None:
    assert refuses(sealed(task="sandloom.files.read"), task="sandloom.files.write")


def test_a_tenants_key_speaks_for_its_tenant_only() -> None:
    assert refuses(sealed(tenant_id="default"))


@pytest.mark.parametrize("key", [FLEET, operator_key("token")])
def test_fleet_and_operator_speak_for_any_tenant(key: SigningKey) -> None:
    message = seal(key, tenant_id="acme", task="sandloom.exec", args={}, deadline_seconds_from_now=5)
    opened = Verifier({key.key_id: key}).open(message, task="sandloom.exec")
    assert (opened.tenant_id, opened.key_id) == ("acme", key.key_id)


def test_a_key_of_the_same_name_with_another_secret_is_refused() -> None:
    message = seal(fleet_key("other"), tenant_id="acme", task="sandloom.exec", args={}, deadline_seconds_from_now=5)
    assert refuses(message)


def test_a_key_that_the_look_up_does_not_know_is_refused() -> None:
    assert refuses(sealed(), Verifier(lambda key_id: None))


def test_a_look_up_that_fails_is_not_taken_for_a_forgery() -> None:
    def broken(key_id: str) -> SigningKey | None:
        raise ConnectionError

    with pytest.raises(ConnectionError):
        Verifier(broken).open(sealed(), task="sandloom.exec")


@pytest.mark.parametrize("name", ["tenant_id", "task", "reply_to"])
@pytest.mark.parametrize("value", ["", "a b", "a\n", "a\x00", "ä", "a" * 192])
def test_names_with_other_characters_are_not_sealed(name: str, value: str) -> None:
    with pytest.raises(ValidationFailed):
        sealed(**{name: value})


@given(st.text(min_size=1).filter(lambda text: text.isascii() or text.encode("utf-8", "ignore").decode() == text))
def test_keys_are_derived_by_hkdf(secret: str) -> None:
    hkdf = HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=b"sandloom fleet v1")
    assert fleet_key(secret).secret == hkdf.derive(secret.encode())


def test_the_keys_of_one_secret_differ_by_purpose() -> None:
    assert fleet_key("x").secret != operator_key("x").secret


def test_an_empty_secret_makes_no_key() -> None:
    with pytest.raises(ValueError, match="empty"):
        fleet_key("")


def test_neither_keys_nor_arguments_show_in_a_repr() -> None:
    opened = Envelope("fleet", "acme", "sandloom.exec", {"env": "hunter2"}, new_op_id(), 1.0)
    assert "hunter2" not in repr(opened)
    assert repr(SigningKey("k", b"hunter2")) == "SigningKey(key_id='k', tenant_id=None)"


def test_signatures_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[str, str]] = []

    def compare(left: str, right: str) -> bool:
        compared.append((left, right))
        return False

    monkeypatch.setattr(hmac, "compare_digest", compare)
    message = sealed()
    assert refuses(message)
    assert compared == [(message["sig"], message["sig"])]
