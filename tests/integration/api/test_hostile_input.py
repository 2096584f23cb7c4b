"""No input to any route gives a 5xx, on either server, over either database."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from api.blueprints import GROUPS
from tests.integration.api.hostile import (
    BODIES,
    CONTENT_TYPES,
    IDS,
    TEMPLATE,
    VALUES,
    Sender,
    target,
    valid_body,
    valid_query,
)  # fmt: skip
from tests.integration.api.servers import Api

OPERATIONS = [operation for group in GROUPS for operation in group.operations]
ROUTES = [operation for operation in OPERATIONS if operation.rule.startswith("/api/v1/")]
WITH_BODY = [operation for operation in ROUTES if operation.body is not None]
WITH_QUERY = [operation for operation in ROUTES if operation.query is not None]
METHODS = ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW"]
JSON = {"Content-Type": "application/json"}


@pytest.fixture
def sender(pair: Api) -> Iterator[Sender]:
    """The sandbox ``box`` is there with generation 1; files are asked of generation 7, so no worker is needed."""
    pair.ready_sandbox()
    sender = Sender(pair.host_port, pair.tenant_id)
    yield sender
    sender.close()


def test_ids_of_every_kind(sender: Sender) -> None:
    for operation in ROUTES:
        body = json.dumps(valid_body(operation) | {"generation": 7}).encode() if operation.body else None
        for name in operation.path_names:
            for value in IDS:
                if value not in ("box", "run-1"):
                    sender.send(operation.method, target(operation, {name: value}, valid_query(operation)), body, JSON)


def test_every_method_on_every_address(sender: Sender) -> None:
    for operation in OPERATIONS:
        allowed = {other.method for other in OPERATIONS if other.rule == operation.rule}
        for method in METHODS:
            if method in allowed or (method == "HEAD" and "GET" in allowed):
                continue
            reply = sender.send(method, target(operation))
            # There the id "resolve" is asked of the route of one sandbox, and refused as reserved.
            if operation.name != "resolve_sandbox" or method not in ("GET", "HEAD", "DELETE"):
                assert reply.status == 405, (method, operation.rule, reply)
                assert allowed <= set(reply.headers["allow"].split(", ")), (method, operation.rule, reply)


def test_bodies_that_are_not_json_or_not_objects(sender: Sender) -> None:
    for operation in WITH_BODY:
        for body in BODIES:
            sender.send(operation.method, target(operation, None, valid_query(operation)), body, JSON)


def test_content_types(sender: Sender) -> None:
    for operation in WITH_BODY:
        for content_type in CONTENT_TYPES:
            headers = {} if content_type is None else {"Content-Type": content_type}
            reply = sender.send(operation.method, target(operation), b'{"x": 1}', headers)
            expected = 422 if (content_type or "").lower().startswith("application/json;") else 415
            if (content_type or "").lower() == "application/json":
                expected = 422
            assert reply.status == expected, (operation.rule, content_type, reply)


def test_every_field_with_every_value(sender: Sender) -> None:
    for operation in WITH_BODY:
        assert operation.body is not None
        for name in operation.body.model_fields:
            for value in VALUES:
                body = valid_body(operation) | {name: value}
                if operation.name != "start_exec" and body.get("generation") == 1:
                    body["generation"] = 7
                sender.send(operation.method, target(operation), json.dumps(body).encode(), JSON)
                if operation.name == "start_exec":
                    sender.send("POST", "/api/v1/sandboxes/box/exec/run-1/cancel")


def test_unknown_fields_are_named_and_values_never_repeated(sender: Sender) -> None:
    for operation in WITH_BODY:
        body = valid_body(operation) | {"genaration": "s3cr3t-value", "zzz": "s3cr3t-value"}
        reply = sender.send(operation.method, target(operation), json.dumps(body).encode(), JSON)
        assert reply.status == 422
        errors = {entry["field"]: entry["message"] for entry in json.loads(reply.body)["errors"]}
        if "generation" in valid_body(operation):
            assert errors["genaration"] == "is not a field; did you mean generation?"
        assert errors["zzz"] == "is not a field"
        assert b"s3cr3t" not in reply.body


SECRET = "s3cr3t-value"
SECRET_VALUES = [
    SECRET, [SECRET, "\x00" + SECRET], {"A": [SECRET]}, {"A": SECRET + "\x00"}, {"A": SECRET + "\ud800"},
    {"A": 1, "B C": SECRET},
]  # fmt: skip


@pytest.mark.parametrize("name", ["env", "sensitive_env", "stdin", "stdin_base64", "argv", "content_base64"])
def test_refused_secrets_are_not_repeated(sender: Sender, name: str) -> None:
    for operation in WITH_BODY:
        assert operation.body is not None
        if name not in operation.body.model_fields:
            continue
        for value in SECRET_VALUES:
            body = valid_body(operation) | {name: value, "generation": 7}
            reply = sender.send(operation.method, target(operation), json.dumps(body).encode(), JSON)
            assert reply.status >= 400
            assert SECRET.encode() not in reply.body, (name, value)


def test_every_query_parameter_with_every_value(sender: Sender) -> None:
    for operation in WITH_QUERY:
        assert operation.query is not None
        for name in [*operation.query.model_fields, "unknown", "\x00", "\ud800"]:
            for value in VALUES:
                if isinstance(value, list | dict) or len(str(value)) > 2500:
                    continue
                # A wait would be kept, and the current generation would go to a worker.
                if (name == "wait" and str(value).isdigit()) or (name == "generation" and str(value) == "1"):
                    continue
                query = valid_query(operation) | {name: value}
                body = json.dumps(valid_body(operation) | {"generation": 7}).encode() if operation.body else None
                sender.send(operation.method, target(operation, None, query), body, JSON)


def test_parameters_given_twice_and_broken_escapes(sender: Sender) -> None:
    for operation in WITH_QUERY:
        assert operation.query is not None
        for name in operation.query.model_fields:
            twice = sender.send(operation.method, f"{target(operation)}?{name}=1&{name}=1", b"{}", JSON)
            assert twice.status == 422, (operation.rule, name, twice)
        for raw in (
            "?%",
            "?%ff=%ff",
            "?a=%zz",
            "?=",
            "?&&&",
            "?path=%ff%fe&generation=7",
            "?generation=%D9%A1",
            "?a[]=1",
        ):
            sender.send(operation.method, target(operation, {"sandbox_id": "other"}) + raw, b"{}", JSON)


HEADERS = [
    "Prefer",
    "Last-Event-ID",
    "Accept",
    "Range",
    "X-Request-ID",
    "X-Forwarded-For",
    "X-Forwarded-Proto",
    "Cookie",
]
HEADER_VALUES = [
    "", " ", "wait", "wait=", "wait=-1", "wait=99999999999999999999", "\xff\xfe", "a" * 4000, ",,,", ";;;=", "bytes=",
    "bytes=5-1", "bytes=-", "bytes=0-0,5-9", "*/*;q=x", "text/event-stream;q=9", "{}", "'\"\\",
]  # fmt: skip


@pytest.mark.parametrize("header", HEADERS)
def test_headers(sender: Sender, header: str) -> None:
    for operation in ROUTES:
        body = json.dumps(valid_body(operation) | {"generation": 7}).encode() if operation.body else None
        for value in HEADER_VALUES:
            headers = {**JSON, header: value}
            sender.send(operation.method, target(operation, {"exec_id": "none"}, valid_query(operation)), body, headers)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from(["/workspace", "box", "\x00"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
bodies = st.dictionaries(st.sampled_from(sorted(TEMPLATE)) | st.text(max_size=12), json_values, max_size=8)
an_id = st.text(min_size=1, max_size=20)
ids = st.fixed_dictionaries({"sandbox_id": an_id, "exec_id": an_id})
names = st.sampled_from(["path", "generation", "limit", "offset", "after"]) | st.text(max_size=6)
queries = st.dictionaries(names, st.text(max_size=12), max_size=4)
relaxed = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@relaxed
@given(operation=st.sampled_from(WITH_BODY), changes=bodies)
def test_any_json(sender: Sender, operation, changes) -> None:
    body = valid_body(operation) | {"generation": 7} | changes
    # Without this a command that happens to be acceptable would be waited for.
    headers = {**JSON, "Prefer": "respond-async"}
    sender.send(operation.method, target(operation, {"sandbox_id": "other"}), json.dumps(body).encode(), headers)


@relaxed
@given(operation=st.sampled_from(WITH_BODY), body=st.binary(max_size=200))
def test_any_bytes(sender: Sender, operation, body) -> None:
    sender.send(operation.method, target(operation), body, JSON)


@relaxed
@given(operation=st.sampled_from(ROUTES), ids=ids, query=queries)
def test_any_address(sender: Sender, operation, ids, query) -> None:
    sender.send(operation.method, target(operation, ids, query), b"{}", JSON)
