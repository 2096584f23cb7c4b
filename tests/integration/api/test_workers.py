"""Operators empty a worker; callers are told when nobody takes a sandbox."""

from __future__ import annotations

from tests.integration.api.servers import Api


def test_a_drained_worker_takes_no_sandboxes_and_says_what_is_left(pair: Api) -> None:
    generation = pair.ready_sandbox("stays")
    path = f"/api/v1/admin/workers/{pair.owner.worker_id}"
    with pair.client() as client:
        try:
            row = client.post(f"{path}/drain").json()
            assert (row["status"], row["remaining_sessions"], row["short_of"]) == ("DRAINING", 0, None)
            assert row["drain"]["quiet"] >= 1
            assert (row["drain"]["done"], row["drain"]["held_by"]) == (False, {})
            listed = client.get("/api/v1/sandboxes/diagnostics/runtime").json()["workers"]
            assert [worker["drain"]["since"] for worker in listed] == [row["drain"]["since"]]

            body = {"sandbox_id": "one-more", "workspace_scope_id": "scope"}
            refused = client.post("/api/v1/sandboxes/resolve", json=body)
            assert (refused.status_code, refused.json()["code"]) == (503, "NO_SANDBOX_WORKER_AVAILABLE")
            assert int(refused.headers["Retry-After"]) > 0
            found = client.post("/api/v1/sandboxes/resolve", json={**body, "sandbox_id": "stays"})
            assert found.json()["generation"] == generation
        finally:
            row = client.post(f"{path}/undrain").json()
        assert (row["status"], row["drain"]) == ("ACTIVE", None)
        assert client.post("/api/v1/sandboxes/resolve", json=body).status_code == 200


def test_a_worker_that_is_not_known_and_one_that_cannot_be(any_server: Api) -> None:
    with any_server.client() as client:
        for method, what in (("POST", "drain"), ("POST", "undrain"), ("GET", "health")):
            answer = client.request(method, f"/api/v1/admin/workers/nobody/{what}")
            assert (answer.status_code, answer.json()["code"]) == (404, "SANDBOX_WORKER_NOT_FOUND")
            assert client.request(method, f"/api/v1/admin/workers/no%20body/{what}").status_code == 422
    with any_server.client(token=None) as client:
        assert client.post("/api/v1/admin/workers/nobody/drain").status_code == 401
