"""Sandboxes and commands over HTTP; the worker's writes are made by the test."""

from __future__ import annotations

import base64
from typing import Any

import httpx
import pytest

from sandloom.execs.records import Outcome
from sandloom.execs.states import ExecStatus
from tests.integration.api.servers import Api


@pytest.fixture
def http(api: Api):
    with api.client() as client:
        yield client


def start(http: httpx.Client, generation: int, exec_id: str, headers: dict[str, str] | None = None, **more: Any):
    body = {"exec_id": exec_id, "generation": generation, "argv": ["true"], **more}
    return http.post("/api/v1/sandboxes/box/exec", json=body, headers=headers)


def test_resolve_creates_finds_and_shows_a_route(api: Api, http: httpx.Client) -> None:
    body = {"sandbox_id": "box", "workspace_scope_id": "scope"}
    first = http.post("/api/v1/sandboxes/resolve", json=body)
    route = first.json()
    assert first.status_code == 200
    assert route["sandbox_id"] == "box"
    assert route["generation"] == 1
    assert route["sandbox_uid"] > 0
    assert route["status"] == "ASSIGNED"
    assert route["workspace"] == "new"
    assert route["worker_endpoint"] == "sandloom.worker.worker-a"
    assert route["expires_at"].endswith("+00:00")
    assert http.post("/api/v1/sandboxes/resolve", json=body).json()["generation"] == 1
    assert http.get("/api/v1/sandboxes/box").json()["sandbox_uid"] == route["sandbox_uid"]
    other = http.post("/api/v1/sandboxes/resolve", json=body | {"workspace_scope_id": "other"})
    assert (other.status_code, other.json()["code"]) == (409, "SANDBOX_SCOPE_MISMATCH")
    missing = http.get("/api/v1/sandboxes/other")
    assert (missing.status_code, missing.json()["code"]) == (404, "SANDBOX_NOT_FOUND")


def test_a_profile_without_workers_is_503_with_retry_after(http: httpx.Client) -> None:
    body = {"sandbox_id": "box", "workspace_scope_id": "scope", "profile": "nobody-has-it"}
    answer = http.post("/api/v1/sandboxes/resolve", json=body)
    assert (answer.status_code, answer.json()["code"]) == (503, "NO_SANDBOX_WORKER_AVAILABLE")
    assert int(answer.headers["Retry-After"]) >= 1


def test_pages_of_sandboxes_and_tenants_do_not_mix(api: Api, http: httpx.Client) -> None:
    for name in ("one", "two", "three"):
        http.post("/api/v1/sandboxes/resolve", json={"sandbox_id": name, "workspace_scope_id": f"scope-{name}"})
    page = http.get("/api/v1/sandboxes", params={"limit": 2, "offset": 1}).json()
    assert (page["total"], len(page["sandboxes"]), page["limit"], page["offset"]) == (3, 2, 2, 1)
    found = http.get("/api/v1/sandboxes", params={"search": "hre"}).json()["sandboxes"]
    assert [row["sandbox_id"] for row in found] == ["three"]
    assert http.get("/api/v1/sandboxes", params={"search": "%"}).json()["total"] == 0
    assert http.get("/api/v1/sandboxes", params={"status": "READY"}).json()["total"] == 0
    assert http.get("/api/v1/sandboxes", params={"limit": 201}).status_code == 422
    with api.client(headers={"X-Sandbox-Tenant": "other"}) as stranger:
        assert stranger.get("/api/v1/sandboxes").json()["total"] == 0
        assert stranger.get("/api/v1/sandboxes/one").status_code == 404


def test_a_foreground_command_answers_with_its_record(api: Api, http: httpx.Client) -> None:
    generation = api.ready_sandbox()
    output = [("stdout", b"caf\xc3\xa9 \xff\n"), ("stderr", b"oops\n")]
    thread = api.owner.run_next("box", generation, output)
    answer = start(http, generation, "run-1", labels={"batch": "a"})
    thread.join()
    record = answer.json()
    assert answer.status_code == 200
    assert (record["status"], record["exit_code"], record["reason"]) == ("SUCCEEDED", 0, "exit")
    assert record["stdout"] == "café \ufffd\n"
    assert record["stderr"] == "oops\n"
    assert record["usage"]["cpu_ms"] == 3
    assert record["labels"] == {"batch": "a"}
    assert record["queued_ms"] >= 0
    exact = http.get("/api/v1/sandboxes/box/exec/run-1", params={"encoding": "base64"}).json()
    assert base64.b64decode(exact["stdout"]) == b"caf\xc3\xa9 \xff\n"
    again = start(http, generation, "run-1", labels={"batch": "a"})
    assert again.json() == record
    conflict = start(http, generation, "run-1", argv=["false"])
    assert (conflict.status_code, conflict.json()["code"]) == (409, "SANDBOX_EXEC_ID_CONFLICT")


@pytest.mark.parametrize(
    ("headers", "more"), [({"Prefer": "respond-async"}, {}), ({"Prefer": "wait=0"}, {}), ({}, {"background": True})]
)
def test_a_command_that_is_not_waited_for_is_202_and_polled(api: Api, http: httpx.Client, headers, more) -> None:
    generation = api.ready_sandbox()
    answer = start(http, generation, "run-1", headers, **more)
    assert answer.status_code == 202
    assert answer.json()["status"] == "QUEUED"
    assert answer.headers["Location"] == "/api/v1/sandboxes/box/exec/run-1"
    assert int(answer.headers["Retry-After"]) >= 1
    assert http.get(answer.headers["Location"], params={"wait": 0}).json()["status"] == "QUEUED"
    record = api.owner.claim("box", "run-1", generation)
    assert http.get(answer.headers["Location"]).json()["status"] == "RUNNING"
    api.owner.finish(record)
    finished = http.get(answer.headers["Location"], params={"wait": 20, "generation": generation}).json()
    assert finished["status"] == "SUCCEEDED"


def test_a_wait_ends_with_the_command(api: Api, http: httpx.Client) -> None:
    generation = api.ready_sandbox()
    start(http, generation, "run-1", background=True)
    thread = api.owner.run_next("box", generation, [("stdout", b"late")])
    assert http.get("/api/v1/sandboxes/box/exec/run-1", params={"wait": 25}).json()["stdout"] == "late"
    thread.join()


def test_a_lost_worker_is_never_a_200(api: Api, http: httpx.Client) -> None:
    generation = api.ready_sandbox()
    lost = Outcome(ExecStatus.WORKER_LOST, "worker_lost", error="SANDBOX_WORKER_LOST")
    thread = api.owner.run_next("box", generation, [], lost)
    answer = start(http, generation, "run-1")
    thread.join()
    assert (answer.status_code, answer.json()["code"]) == (503, "SANDBOX_WORKER_LOST")
    assert http.get("/api/v1/sandboxes/box/exec/run-1").json()["status"] == "WORKER_LOST"


def test_scopes_generations_and_missing_things(api: Api, http: httpx.Client) -> None:
    generation = api.ready_sandbox()
    stale = start(http, generation + 1, "run-1")
    assert (stale.status_code, stale.json()["code"]) == (409, "STALE_SANDBOX_ROUTE")
    assert start(http, generation, "run-2", background=True, exec_scope="scope-a").status_code == 202
    busy = start(http, generation, "run-3", background=True, exec_scope="scope-a")
    assert (busy.status_code, busy.json()["code"]) == (409, "SANDBOX_EXEC_SCOPE_BUSY")
    assert start(http, generation, "run-4", background=True, exec_scope="scope-b").status_code == 202
    stale_poll = http.get("/api/v1/sandboxes/box/exec/run-2", params={"generation": generation + 1})
    assert (stale_poll.status_code, stale_poll.json()["code"]) == (409, "STALE_SANDBOX_ROUTE")
    missing = http.get("/api/v1/sandboxes/box/exec/run-9")
    assert (missing.status_code, missing.json()["code"]) == (404, "SANDBOX_EXEC_NOT_FOUND")


def test_what_no_part_here_can_serve_is_refused_by_name(api: Api, http: httpx.Client) -> None:
    generation = api.ready_sandbox()
    secret = start(http, generation, "run-1", sensitive_env={"API_TOKEN": "s3cret"})
    assert (secret.status_code, secret.json()["code"]) == (400, "SANDBOX_CREDENTIAL_BROKER_UNAVAILABLE")
    assert "API_TOKEN" in secret.json()["detail"]
    assert "s3cret" not in secret.text
    model = start(http, generation, "run-1", model_access={"provider": "openai"})
    assert (model.status_code, model.json()["code"]) == (409, "SANDBOX_MODEL_ACCESS_UNAVAILABLE")
    owned = start(http, generation, "run-1", env={"A": "v", "LD_PRELOAD": "v4lue", "http_proxy": "v4lue"})
    assert (owned.status_code, owned.json()["code"]) == (400, "SANDBOX_ENV_REFUSED")
    assert owned.json()["detail"].endswith(": LD_PRELOAD, http_proxy")
    assert "v4lue" not in owned.text
    egress = start(http, generation, "run-1", egress={"allow": ["example.org"]})
    assert (egress.status_code, egress.json()["code"]) == (409, "SANDBOX_EGRESS_POLICY_UNSUPPORTED")


def test_cancel_ends_what_waits_and_lists_show_it(api: Api, http: httpx.Client) -> None:
    generation = api.ready_sandbox()
    start(http, generation, "run-1", background=True)
    assert http.post("/api/v1/sandboxes/box/exec/run-1/cancel").json() == {"cancelled": True}
    again = http.post("/api/v1/sandboxes/box/exec/run-1/cancel", json={"generation": generation})
    assert again.json() == {"cancelled": False}
    stale = http.post("/api/v1/sandboxes/box/exec/run-1/cancel", params={"generation": generation + 1})
    assert (stale.status_code, stale.json()["code"]) == (409, "STALE_SANDBOX_ROUTE")
    listed = http.get("/api/v1/sandboxes/box/exec").json()
    assert listed["total"] == 1
    assert listed["execs"][0]["status"] == "CANCELLED"
    assert listed["execs"][0]["stdout"] is None


def test_diagnostics_count_commands_and_places(api: Api, http: httpx.Client) -> None:
    generation = api.ready_sandbox()
    start(http, generation, "run-1", background=True)
    runtime = http.get("/api/v1/sandboxes/diagnostics/runtime").json()
    totals, worker = runtime["totals"], runtime["workers"][0]
    assert runtime["queue_length"] == worker["queued_execs"] >= 1
    assert totals["running_sessions"] >= 1
    assert totals["remaining_sessions"] + totals["running_sessions"] == totals["session_capacity"] == 1000
    assert totals["existing_session_exec_capacity"] == 16 * totals["running_sessions"]
    assert worker["worker_id"] == "worker-a"
    assert runtime["truncated"] is False
    health = http.get("/healthz").json()
    assert health["workers"] == {"live": 1, "total": 1}
    assert health["worker"]["id"] == "worker-a"
    assert health["dependencies"] == {"database": "UP", "bus": "UP", "broker": "UP"}
    assert health["worker"]["broker"] == {}  # this one has not renewed its lease yet, so has said nothing


def test_the_audit_tells_a_sandboxs_life(api: Api, http: httpx.Client) -> None:
    generation = api.ready_sandbox()
    audit = http.get("/api/v1/sandboxes/box/audit").json()
    assert (audit["generation"], audit["status"], audit["lifecycle_count"]) == (generation, "READY", 1)
    assert audit["history"][0]["created_by"] == "operator"
    assert audit["history"][0]["ready_at"] is not None
    assert http.get("/api/v1/sandboxes/none/audit").json()["code"] == "SANDBOX_NOT_FOUND"
