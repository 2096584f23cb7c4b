"""Every error of the service comes back as its own exception."""

from __future__ import annotations

import httpx
import pytest

from sandloom.errors import REGISTRY, SandloomError, Unavailable, ValidationFailed
from sandloom.sdk.http import client_options, problem_of
from sandloom.sdk.transport import Transport


def _response(status: int, **arguments: object) -> httpx.Response:
    request = httpx.Request("GET", "http://service.test/x")
    return httpx.Response(status, request=request, **arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("code", sorted(REGISTRY))
def test_a_code_becomes_its_class(code: str) -> None:
    sent = REGISTRY[code]("what happened", field="x")
    got = problem_of(_response(sent.status, json=sent.to_problem(), headers={"X-Request-ID": "r1", "Retry-After": "7"}))
    assert type(got) is REGISTRY[code]
    assert got.detail == "what happened"
    assert (got.extra["field"], got.extra["request_id"], got.retry_after_seconds) == ("x", "r1", 7)


@pytest.mark.parametrize("code", sorted(REGISTRY))
def test_its_text_says_what_happened_and_what_to_do(code: str) -> None:
    for detail in ("what happened", None):
        sent = REGISTRY[code](detail)
        got = problem_of(_response(sent.status, json=sent.to_problem()))
        assert got.detail in str(got)
        assert str(got).count(got.remedy) == 1
        assert got.remedy


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'"x"', b"{}"])
def test_an_answer_without_a_problem_is_an_error_all_the_same(body: bytes) -> None:
    assert type(problem_of(_response(500, content=body))) is SandloomError
    assert type(problem_of(_response(502, content=body))) is Unavailable


def test_a_code_that_this_client_does_not_know_keeps_its_text() -> None:
    got = problem_of(_response(409, json={"code": "SANDBOX_FROM_THE_FUTURE", "detail": "later"}))
    assert type(got) is SandloomError
    assert got.detail == "later"


def test_nobody_there_is_unavailable_and_names_the_address_without_the_token() -> None:
    transport = Transport("http://127.0.0.1:1", "the-token", tenant=None, timeout_seconds=2, tries=1)
    with pytest.raises(Unavailable, match=r"127\.0\.0\.1:1") as caught:
        transport.call("GET", "/sandboxes")
    assert "the-token" not in str(caught.value)
    transport.close()


def test_fields_that_were_refused_are_in_the_text() -> None:
    sent = ValidationFailed(errors=[{"field": "exec_scope", "message": "String should have at least 3 characters"}])
    assert str(problem_of(_response(422, json=sent.to_problem()))).endswith(
        "; exec_scope String should have at least 3 characters"
    )


def test_without_a_token_none_is_sent() -> None:
    assert "Authorization" not in client_options("http://127.0.0.1", "", None, 1.0)["headers"]
    assert client_options("http://127.0.0.1", "t", None, 1.0)["headers"]["Authorization"] == "Bearer t"
