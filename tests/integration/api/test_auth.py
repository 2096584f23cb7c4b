"""Nothing but the named addresses answers without a token."""

from __future__ import annotations

import http.client

import httpx
import pytest

from api.blueprints import GROUPS
from tests.integration.api.servers import PREVIOUS_TOKEN, TOKEN, Api

OPERATIONS = [operation for group in GROUPS for operation in group.operations]
OPEN = {"/health", "/healthz", "/openapi.json", "/docs", "/redoc"}


def filled(rule: str) -> str:
    return rule.replace("<sandbox_id>", "box").replace("<exec_id>", "run-1")


@pytest.mark.parametrize("token", [None, "", "wrong", TOKEN + "x", TOKEN[:-1], "pässword", "Bearer"])
def test_every_route_but_the_open_ones_needs_the_token(any_server: Api, token: str | None) -> None:
    host, port = any_server.host_port
    connection = http.client.HTTPConnection(host, port, timeout=60)
    headers = {} if token is None else {"Authorization": f"Bearer {token}".encode()}
    for operation in OPERATIONS:
        connection.request(operation.method, filled(operation.rule), headers=headers)
        answer = connection.getresponse()
        body = answer.read()
        if operation.rule in OPEN:
            assert answer.status == 200, operation
            continue
        assert answer.status == 401, (operation, body)
        assert answer.getheader("Content-Type") == "application/problem+json"
        assert answer.getheader("WWW-Authenticate", "").startswith("Bearer")
        assert answer.getheader("X-Request-ID")
    connection.close()


def test_unknown_addresses_and_methods_need_it_too(any_server: Api) -> None:
    with any_server.client(token=None) as stranger:
        assert stranger.get("/").status_code == 401
        assert stranger.get("/api/v1/nothing").status_code == 401
        assert stranger.post("/health").status_code == 401
        assert stranger.options("/api/v1/sandboxes").status_code == 401


@pytest.mark.parametrize("value", [f"bearer {TOKEN}", f"Bearer  {TOKEN}", f"Bearer {PREVIOUS_TOKEN}"])
def test_both_tokens_of_a_rotation_are_accepted(any_server: Api, value: str) -> None:
    with any_server.client(token=None, headers={"Authorization": value}) as client:
        assert client.get("/api/v1/sandboxes").status_code == 200


@pytest.mark.parametrize("value", [TOKEN, f"Basic {TOKEN}", f"Bearer {TOKEN} {TOKEN}", f"Bearer\t{TOKEN}"])
def test_other_schemes_are_refused(any_server: Api, value: str) -> None:
    with any_server.client(token=None, headers={"Authorization": value}) as client:
        assert client.get("/api/v1/sandboxes").status_code == 401


@pytest.mark.parametrize("tenant", ["", "a b", "../x", "a" * 65, "-x", "t;DROP"])
def test_a_tenant_that_cannot_be_one_is_422(any_server: Api, tenant: str) -> None:
    with any_server.client(headers={"X-Sandbox-Tenant": tenant}) as client:
        answer = client.get("/api/v1/sandboxes")
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == "X-Sandbox-Tenant"


def test_request_ids_are_kept_when_sane_and_in_the_log(any_server: Api) -> None:
    with any_server.client() as client:
        kept = client.get("/api/v1/sandboxes", headers={"X-Request-ID": "trace-1.a_b"})
        made = client.get("/api/v1/nothing", headers={"X-Request-ID": "not sane"})
        too_long = client.get("/health", headers={"X-Request-ID": "x" * 129})
    assert kept.headers["X-Request-ID"] == "trace-1.a_b"
    assert made.headers["X-Request-ID"] not in ("not sane", "")
    assert len(too_long.headers["X-Request-ID"]) < 129
    if any_server.process is not None:
        any_server.process.wait_for_output('"request_id": "trace-1.a_b"')


def test_the_documents_need_nothing_from_elsewhere(any_server: Api) -> None:
    with any_server.client(token=None) as client:
        for path in ("/docs", "/redoc"):
            page: httpx.Response = client.get(path)
            assert page.headers["Content-Type"].startswith("text/html")
            assert "/openapi.json" in page.text
            assert 'src="http' not in page.text
            assert 'href="http' not in page.text.split("<script>")[0]
            assert "default-src 'none'" in page.headers["Content-Security-Policy"]
