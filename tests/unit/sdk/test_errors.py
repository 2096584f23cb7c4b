"""Every error of the service comes back as its own exception."""

from __future__ import annotations

import httpx
import pytest

from sandloom import Client
from sandloom.errors import REGISTRY, SandloomError, SettingsInvalid, Unauthorized, Unavailable, ValidationFailed
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
    sent = ValidationFailed(errors=[{"field": "exec_scope", "message": "must have at least 3 characters"}])
    assert str(problem_of(_response(422, json=sent.to_problem()))) == (
        "A field of the request is not acceptable: exec_scope: must have at least 3 characters"
    )


@pytest.mark.parametrize("errors", [None, "no list", [None, 5], [{}], {"field": "x"}])
def test_a_refusal_may_list_anything(errors: object) -> None:
    problem = {"code": "VALIDATION_FAILED", "detail": "refused", "errors": errors}
    assert str(problem_of(_response(422, json=problem))).startswith("refused")


def test_without_a_token_the_error_says_where_one_is_looked_for() -> None:
    refused = _response(401, json=Unauthorized().to_problem())
    assert "SANDBOX_API_KEY" in str(problem_of(refused))
    refused.request.headers["Authorization"] = "Bearer wrong"
    assert "SANDBOX_API_KEY" not in str(problem_of(refused))


SECRET = "se\u00a7ret"


@pytest.mark.parametrize(
    ("url", "token", "tenant"),
    [
        *(
            (url, "t", None)
            for url in ("127.0.0.1:8080", "", "http://", "ftp://host", "http://host:port", "http://h\n")
        ),
        ("http://user:password@host:port", "t", None),
        ("http://host/api/v1", "t", None),
        *(("http://host", token, None) for token in (SECRET, "secret\nsecret", "secret secret")),
        ("http://host", "t", "ten\r\nant"),
    ],
)
def test_what_cannot_be_an_address_or_a_token_is_refused_and_not_shown(
    url: str, token: str, tenant: str | None
) -> None:
    with pytest.raises(SettingsInvalid, match="SANDBOX_") as caught:
        Client(url, token, tenant=tenant)
    assert not any(shown in str(caught.value) for shown in ("secret", SECRET, "password"))


@pytest.mark.parametrize("name", ["a/b", "box?status=READY", "..", "my box", "box/exec", ""])
def test_what_is_no_name_never_becomes_another_address(name: str) -> None:
    # Nobody listens there: the refusal comes before anything is sent.
    with Client("http://127.0.0.1:1", "t") as client, pytest.raises(ValidationFailed, match="sandbox_id: must be 3 to"):
        client.attach(name)


def test_the_environment_may_name_a_port_of_this_machine() -> None:
    with Client.from_env({"SANDBOX_PORT": "8181"}) as client:
        assert client.base_url == "http://127.0.0.1:8181"
    with pytest.raises(SettingsInvalid):
        Client.from_env({"SANDBOX_PORT": "abc"})


def test_without_a_token_none_is_sent() -> None:
    assert "Authorization" not in client_options("http://127.0.0.1", "", None, 1.0)["headers"]
    assert client_options("http://127.0.0.1", "t", None, 1.0)["headers"]["Authorization"] == "Bearer t"
