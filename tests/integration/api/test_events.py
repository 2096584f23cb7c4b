"""The event stream: every event once and in order, in each of its forms, whenever the client comes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from sandloom.sdk.events import Frame, frames
from tests.integration.api.servers import Api

EVENTS = "/api/v1/sandboxes/box/exec/run-1/events"


@pytest.fixture
def http(api: Api):
    with api.client() as client:
        yield client


@pytest.fixture
def generation(api: Api, http: httpx.Client) -> int:
    generation = api.ready_sandbox()
    body = {"exec_id": "run-1", "generation": generation, "argv": ["true"], "background": True}
    assert http.post("/api/v1/sandboxes/box/exec", json=body).status_code == 202
    return generation


def run_to_the_end(api: Api, generation: int) -> None:
    record = api.owner.claim("box", "run-1", generation)
    seq = api.owner.write(record, ("stdout", "größe\n".encode()), ("stderr", b"\xff\x00"))
    api.owner.finish(record, [("stdout", b"last")], after=seq)


def all_frames(response: httpx.Response) -> Iterator[Frame]:
    assert response.status_code == 200
    assert response.headers["Content-Type"].startswith("text/event-stream")
    assert response.headers["Cache-Control"] == "no-store"
    assert response.headers["X-Accel-Buffering"] == "no"
    yield from frames(response.iter_raw())


def kinds(found: list[Frame]) -> list[tuple[str | None, str]]:
    return [(frame.id, frame.event) for frame in found]


FULL = [("1", "status"), ("2", "status"), ("3", "stdout"), ("4", "stderr"), ("5", "stdout"), ("6", "status")]


def test_after_the_end_the_whole_run_is_replayed(api: Api, http: httpx.Client, generation: int) -> None:
    run_to_the_end(api, generation)
    with http.stream("GET", EVENTS) as response:
        found = list(all_frames(response))
    assert kinds(found) == [*FULL, (None, "end")]
    data = [json.loads(frame.data) for frame in found]
    assert data[0]["status"] == "QUEUED"
    assert data[2] == {"text": "größe\n"}
    assert data[3] == {"base64": "/wA="}
    assert (data[5]["status"], data[5]["exit_code"], data[5]["reason"]) == ("SUCCEEDED", 0, "exit")


def test_a_client_that_is_there_from_the_start_sees_each_event_as_it_comes(
    api: Api, http: httpx.Client, generation: int
) -> None:
    with http.stream("GET", EVENTS) as response:
        arriving = all_frames(response)
        assert next(arriving).id == "1"
        record = api.owner.claim("box", "run-1", generation)
        assert next(arriving).id == "2"
        seq = api.owner.write(record, ("stdout", b"one"))
        assert json.loads(next(arriving).data) == {"text": "one"}
        api.owner.finish(record, after=seq)
        assert kinds(list(arriving)) == [("4", "status"), (None, "end")]


def test_a_lost_head_delays_and_loses_nothing(api: Api, http: httpx.Client, generation: int) -> None:
    with http.stream("GET", EVENTS) as response:
        arriving = all_frames(response)
        assert next(arriving).id == "1"
        api.owner.claim("box", "run-1", generation, silently=True)
        assert next(arriving).id == "2"


@pytest.mark.parametrize("after", [0, 2, 5])
def test_a_cursor_resumes_by_header_or_query(api: Api, http: httpx.Client, generation: int, after: int) -> None:
    run_to_the_end(api, generation)
    with http.stream("GET", EVENTS, headers={"Last-Event-ID": str(after)}, params={"after": 1}) as response:
        assert kinds(list(all_frames(response))) == [*FULL[after:], (None, "end")]
    with http.stream("GET", EVENTS, params={"after": after}) as response:
        assert kinds(list(all_frames(response))) == [*FULL[after:], (None, "end")]


def test_a_cursor_at_the_end_is_204_in_every_form(api: Api, http: httpx.Client, generation: int) -> None:
    run_to_the_end(api, generation)
    assert http.get(EVENTS, params={"after": 6}).status_code == 204
    assert http.get(EVENTS, params={"after": 6, "wait": 5}).status_code == 204
    assert http.get(EVENTS, params={"after": 6}, headers={"Accept": "application/x-ndjson"}).status_code == 204


def test_a_malformed_cursor_is_400(http: httpx.Client, generation: int) -> None:
    for cursor in ("-1", "x", "1.0", "", " 1", "+1", "9" * 40, "1e3", "١"):
        answer = http.get(EVENTS, params={"after": cursor})
        assert (answer.status_code, answer.json()["code"]) == (400, "SANDBOX_CURSOR_INVALID"), cursor


def test_a_cursor_ahead_is_409_and_what_is_not_there_404(http: httpx.Client, generation: int) -> None:
    ahead = http.get(EVENTS, params={"after": 2})
    assert (ahead.status_code, ahead.json()["code"]) == (409, "SANDBOX_CURSOR_AHEAD")
    missing = http.get(EVENTS.replace("run-1", "run-2"))
    assert (missing.status_code, missing.json()["code"]) == (404, "SANDBOX_EXEC_NOT_FOUND")
    stale = http.get(EVENTS, params={"generation": generation + 1})
    assert (stale.status_code, stale.json()["code"]) == (409, "STALE_SANDBOX_ROUTE")


def test_ndjson_has_the_same_events(api: Api, http: httpx.Client, generation: int) -> None:
    run_to_the_end(api, generation)
    answer = http.get(EVENTS, headers={"Accept": "application/x-ndjson"})
    assert answer.headers["Content-Type"] == "application/x-ndjson"
    found: list[dict[str, Any]] = [json.loads(line) for line in answer.text.splitlines() if line]
    assert [(str(entry["id"]), entry["event"]) for entry in found[:-1]] == FULL
    assert found[-1] == {"event": "end", "data": {}}


def test_a_long_poll_answers_when_something_comes(api: Api, http: httpx.Client, generation: int) -> None:
    first = http.get(EVENTS, params={"wait": 20}).json()
    assert ([entry["id"] for entry in first["events"]], first["next"], first["ended"]) == ([1], 1, False)
    assert http.get(EVENTS, params={"wait": 0, "after": 1}).json() == {"events": [], "next": 1, "ended": False}
    thread = api.owner.run_next("box", generation, [("stdout", b"late")])
    cursor, seen = 1, []
    while True:
        poll = http.get(EVENTS, params={"wait": 20, "after": cursor}).json()
        seen += [entry["event"] for entry in poll["events"]]
        cursor = poll["next"]
        if poll["ended"]:
            break
    thread.join()
    assert seen == ["status", "stdout", "status"]
