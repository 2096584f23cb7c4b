"""Keys, what they may do, what they may not see, and how much of it."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp import Client
from sqlalchemy import delete

from api.blueprints import GROUPS
from api.operations import Operation
from api.public import PUBLIC_PATHS
from sandloom.db.tables import sandboxes
from sandloom.mcp.tools import TOOLS
from sandloom.objects import open_object_store
from sandloom.sdk.events import frames
from sandloom.templates.catalog import Catalog
from sandloom.templates.records import Template
from tests.integration.api.conftest import SQLITE, _served
from tests.integration.api.servers import Api
from tests.services.mcp import called, over_http, refused, text_of
from tests.strangers import EXEC, SANDBOX, SCOPE, TEMPLATE, arguments, named

OPERATIONS = [
    operation for group in GROUPS for operation in group.operations if operation.rule not in PUBLIC_PATHS
]  # fmt: skip
#: They name nothing of anybody's and answer with what is the caller's own.
OWN = {
    "POST /api/v1/sandboxes/resolve", "GET /api/v1/sandboxes", "GET /api/v1/templates", "GET /api/v1/usage",
    "POST /api/v1/sandboxes/mcp/streamable-http",
}  # fmt: skip
#: The same of the tools of that last one, whose calls are walked over below.
OWN_TOOLS = {"sandbox_profile", "sandbox_resolve", "sandbox_create"}
WRONG_QUESTIONS = (
    "since=2026-13-01", "until=yesterday", "group_by=owner", "group_by=day,day", "label=a'b", "limit=0",
    "since=2026-01-02&until=2026-01-01", "since=1969-12-31", "until=9999-01-01&since=1970-01-01",
)  # fmt: skip
_tenants = itertools.count(1)


@dataclass
class Two:
    """``them``: who has everything that the walk names. ``stranger``: a key of another tenant."""

    api: Api
    them: str
    stranger: str
    stranger_id: str

    def client(self, **headers: str) -> httpx.Client:
        return self.api.client(self.stranger, headers={"X-Sandbox-Tenant": self.stranger_id, **headers})


def new_key(api: Api, tenant_id: str, **body: Any) -> str:
    with api.client(headers={"X-Sandbox-Tenant": tenant_id}) as operator:
        answer = operator.post("/api/v1/admin/keys", json={"name": "test", **body})
    assert answer.status_code == 200, answer.text
    return str(answer.json()["key"])


@pytest.fixture
def two(pair: Api) -> Two:
    number = next(_tenants)
    them, stranger_id = pair.tenant_id, f"stranger-{number}"
    generation = pair.ready_sandbox(SANDBOX)
    with pair.client() as client:
        body = {"exec_id": EXEC, "generation": generation, "argv": ["true"], "background": True}
        assert client.post(f"/api/v1/sandboxes/{SANDBOX}/exec", json=body).status_code == 202
    pair.owner.finish(pair.owner.claim(SANDBOX, EXEC, generation))
    store = open_object_store(pair.settings)
    assert store is not None
    digest = f"sha256:{hashlib.sha256(b'x').hexdigest()}"
    Catalog(store, shared=True).publish(them, Template(TEMPLATE, digest, 1, "2026-01-01T00:00:00+00:00"), iter([b"x"]))
    return Two(pair, them, new_key(pair, stranger_id), stranger_id)


def send(client: httpx.Client, operation: Operation) -> httpx.Response:
    body = {"content": b"x"} if operation.raw_body else {"json": arguments(operation.body)} if operation.body else {}
    return client.request(operation.method, named(operation.rule), params=arguments(operation.query), **body)


def test_a_stranger_finds_nothing_behind_any_route(two: Two) -> None:
    with two.client() as client:
        for operation in OPERATIONS:
            name = f"{operation.method} {operation.rule}"
            answer = send(client, operation)
            if name in OWN:
                assert answer.status_code in (200, 202), (name, answer.text)
                if operation.method == "GET":
                    assert all(word not in answer.text for word in (SANDBOX, EXEC, TEMPLATE, SCOPE)), name
                elif operation.rule.endswith("/resolve"):  # its own from here on, and nothing else
                    forget_own(two)
            else:
                assert answer.status_code == 404, (name, answer.text)
    with two.api.client() as owner:
        assert owner.get(f"/api/v1/sandboxes/{SANDBOX}/exec/{EXEC}").json()["status"] == "SUCCEEDED"
        assert owner.get(f"/api/v1/sandboxes/{SANDBOX}").json()["status"] == "READY"
        assert [found["name"] for found in owner.get("/api/v1/templates").json()["templates"]] == [TEMPLATE]


def test_a_stranger_finds_nothing_behind_any_tool(two: Two) -> None:
    async def drive(client: Client) -> None:
        for name in sorted(set(TOOLS) - OWN_TOOLS):
            code = await refused(client, name, **arguments(TOOLS[name].arguments))
            assert code in ("SANDBOX_NOT_FOUND", "SANDBOX_EXEC_NOT_FOUND"), (name, code)
        assert SANDBOX not in text_of(await client.call_tool("sandbox_profile", {}))
        mine = await called(client, "sandbox_resolve", sandbox_id=SANDBOX, workspace_scope_id="own")
        assert mine["generation"] == 1

    headers = {"Authorization": f"Bearer {two.stranger}"}
    over_http(two.api.url, headers, "auto", drive)
    forget_own(two)


def forget_own(two: Two) -> None:
    """The id must be nobody's in the stranger's tenant again, or the walk would go on with that."""
    mine = sandboxes.c.tenant_id == two.stranger_id
    assert two.api.db.write(lambda connection: connection.execute(delete(sandboxes).where(mine)).rowcount) == 1


def test_naming_the_tenant_helps_nothing(two: Two) -> None:
    with two.client(**{"X-Sandbox-Tenant": two.them}) as client:
        for operation in OPERATIONS:
            assert send(client, operation).status_code == 404, operation.rule
        assert client.get("/health").status_code == 200


def test_the_walk_would_notice_a_route_that_shows_what_is_theirs(two: Two) -> None:
    """Whoever may, finds all of it: 404 was no mistake of the walk."""
    key = new_key(two.api, two.them)
    shown = {"GET": 200, "POST": None, "PUT": None, "DELETE": None}
    with two.api.client(key) as client:
        for operation in OPERATIONS:
            in_files = "/files" in operation.rule or operation.rule.endswith("/archive")
            if shown[operation.method] and not in_files and not operation.operators_only:
                assert send(client, operation).status_code == 200, operation.rule
    with two.api.client() as operator:
        for path in ("sandboxes/diagnostics/runtime", "admin/keys", "admin/quotas", "usage?all_tenants=true"):
            assert operator.get(f"/api/v1/{path}").status_code == 200, path


def test_a_key_is_shown_once_and_works_until_it_is_revoked(any_server: Api) -> None:
    tenant = any_server.tenant_id
    with any_server.client() as operator:
        made = operator.post("/api/v1/admin/keys", json={"name": "ci", "lifetime_seconds": 3600}).json()
        assert (made["tenant_id"], made["scopes"], made["usable"]) == (tenant, ["read", "tasks", "write"], True)
        listed = operator.get("/api/v1/admin/keys").json()
        assert [key["key_id"] for key in listed["keys"]] == [made["key_id"]]
        assert made["key"].split(":")[2] not in operator.get("/api/v1/admin/keys").text
        with any_server.client(made["key"]) as client:
            assert client.get("/api/v1/sandboxes").status_code == 200
            assert client.get("/api/v1/sandboxes", headers={"X-Sandbox-Tenant": "other"}).status_code == 404
            revoked = operator.delete(f"/api/v1/admin/keys/{made['key_id']}").json()
            assert (revoked["usable"], revoked["revoked_at"] is None) == (False, False)
            refused = client.get("/api/v1/sandboxes")
            assert (refused.status_code, refused.json()["code"]) == (401, "UNAUTHORIZED")
        assert operator.delete(f"/api/v1/admin/keys/{tenant}:0123456789ab").status_code == 404
        assert operator.delete("/api/v1/admin/keys/box").status_code == 422
        for wrong in ({"name": ""}, {"name": "x", "scopes": []}, {"name": "x", "scopes": ["read", "read"]},
                      {"name": "x", "lifetime_seconds": 0}, {"name": "x", "scopes": ["all"]}):  # fmt: skip
            assert operator.post("/api/v1/admin/keys", json=wrong).status_code == 422


def test_an_open_stream_ends_when_its_key_is_revoked(any_server: Api) -> None:
    generation = any_server.ready_sandbox()
    events = "/api/v1/sandboxes/box/exec/run-1/events"
    key = new_key(any_server, any_server.tenant_id)
    with any_server.client(key) as client, any_server.client() as operator:
        body = {"exec_id": "run-1", "generation": generation, "argv": ["true"], "background": True}
        assert client.post("/api/v1/sandboxes/box/exec", json=body).status_code == 202
        record = any_server.owner.claim("box", "run-1", generation)
        with client.stream("GET", events) as mine, operator.stream("GET", events) as watched:
            arriving, of_operator = frames(mine.iter_raw()), frames(watched.iter_raw())
            assert [next(arriving).id, next(arriving).id] == ["1", "2"]
            key_id = operator.get("/api/v1/admin/keys").json()["keys"][0]["key_id"]
            assert operator.delete(f"/api/v1/admin/keys/{key_id}").status_code == 200
            any_server.owner.write(record, ("stdout", b"a secret"))
            assert [frame.event for frame in arriving] == []
            any_server.owner.finish(record, after=3)
            assert [frame.event for frame in of_operator] == ["status", "status", "stdout", "status", "end"]
        assert client.get(events).status_code == 401


def test_a_key_does_what_its_scopes_say(any_server: Api) -> None:
    any_server.ready_sandbox()
    calls = [("GET", "/api/v1/sandboxes/box"), ("DELETE", "/api/v1/sandboxes/nobody")]
    for scopes, statuses in ((["read"], [200, 403]), (["write"], [403, 404]), (["tasks"], [403, 403])):
        with any_server.client(new_key(any_server, any_server.tenant_id, scopes=scopes)) as client:
            answers = [client.request(method, path) for method, path in calls]
            assert [answer.status_code for answer in answers] == statuses
            assert {answer.json().get("scope") for answer in answers if answer.status_code == 403} <= {"read", "write"}


def test_quotas_say_which_of_them_was_reached(any_server: Api) -> None:
    generation = any_server.ready_sandbox()
    with any_server.client() as operator:
        assert operator.get("/api/v1/admin/quotas").json()["sandboxes"] is None
        wanted = {"sandboxes": 1, "open_execs": 1}
        put = operator.put("/api/v1/admin/quotas", json=wanted).json()
        assert {name: put[name] for name in wanted} == wanted
        assert operator.get("/api/v1/admin/quotas").json() == put
        key = new_key(any_server, any_server.tenant_id)
        with any_server.client(key) as client:
            more = client.post(
                "/api/v1/sandboxes/resolve", json={"sandbox_id": "more", "workspace_scope_id": "scope"}
            )  # fmt: skip
            problem = more.json()
            assert (more.status_code, problem["code"]) == (429, "SANDBOX_QUOTA_EXCEEDED")
            assert (problem["quota"], problem["limit"], problem["used"]) == ("sandboxes", 1, 1)
            assert int(more.headers["Retry-After"]) > 0
            body = {"generation": generation, "argv": ["true"], "background": True, "exec_scope": "one"}
            first, second = (
                client.post("/api/v1/sandboxes/box/exec", json={**body, "exec_id": name, "exec_scope": name})
                for name in ("one", "two")
            )
            assert (first.status_code, second.status_code) == (202, 429)
            assert second.json()["quota"] == "open_execs"
        assert operator.put("/api/v1/admin/quotas", json={"sandboxes": -1}).status_code == 422
        assert operator.put("/api/v1/admin/quotas", json={"sandbox": 1}).status_code == 422


def test_usage_is_what_the_records_say(pair: Api) -> None:
    generation = pair.ready_sandbox()
    with pair.client(new_key(pair, pair.tenant_id)) as client:
        for number in range(3):
            name = f"run-{number}"
            body = {"exec_id": name, "generation": generation, "argv": ["true"], "background": True}
            started = client.post("/api/v1/sandboxes/box/exec", json={**body, "labels": {"team": "ab"[number % 2]}})
            assert started.status_code == 202
            pair.owner.finish(pair.owner.claim("box", name, generation))
        records = [client.get(f"/api/v1/sandboxes/box/exec/run-{n}").json() for n in range(3)]
        report = client.get("/api/v1/usage?group_by=sandbox,day&label=team").json()
        cpu_ms = sum(record["usage"]["cpu_ms"] for record in records)
        assert (report["sums"]["execs"], report["sums"]["cpu_ms"]) == (3, cpu_ms)
        assert report["sums"]["wall_ms"] == sum(record["duration_ms"] for record in records)
        assert sorted((group["label"], group["execs"]) for group in report["groups"]) == [("a", 2), ("b", 1)]
        today = report["until"]
        assert {(group["sandbox_id"], group["day"]) for group in report["groups"]} == {("box", today)}
        assert client.get("/api/v1/usage?since=2020-01-01&until=2020-01-31").json()["sums"]["execs"] == 0
        assert client.get("/api/v1/usage?all_tenants=true").status_code == 404
        for wrong in WRONG_QUESTIONS:
            assert client.get(f"/api/v1/usage?{wrong}").status_code == 422, wrong
    with pair.client() as operator:
        every = operator.get("/api/v1/usage?all_tenants=true&group_by=tenant&limit=200").json()
        assert {group["tenant_id"]: group["execs"] for group in every["groups"]}[pair.tenant_id] == 3


@pytest.fixture(params=SQLITE)
def slow_pace(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Api]:
    with contextlib.ExitStack() as stack:
        yield stack.enter_context(_served(request.param, request, tmp_path, SANDBOX_TENANT_RATE_LIMIT="3/day"))


def test_a_tenant_that_calls_too_often_waits_and_no_other(slow_pace: Api) -> None:
    keys = [new_key(slow_pace, "hasty"), new_key(slow_pace, "hasty"), new_key(slow_pace, "calm")]

    def look(key: str) -> httpx.Response:
        with slow_pace.client(key, headers={"X-Sandbox-Tenant": "calm" if key is keys[2] else "hasty"}) as client:
            return client.get("/api/v1/sandboxes")

    answers = [look(keys[number % 2]) for number in range(8)]
    statuses = [answer.status_code for answer in answers]
    assert statuses[:3] == [200, 200, 200]
    # Beside what is counted in Redis, a process counts for itself while Redis does not answer at once.
    assert 3 <= statuses.count(200) <= (3 if slow_pace.process is None else 6)
    for answer in answers:
        if answer.status_code != 200:
            assert (answer.status_code, answer.json()["code"]) == (429, "SANDBOX_RATE_LIMITED")
            assert 0 < int(answer.headers["Retry-After"]) <= 86_400
    assert look(keys[2]).status_code == 200
    with slow_pace.client() as operator:
        assert [operator.get("/api/v1/sandboxes").status_code for _ in range(5)] == [200] * 5
