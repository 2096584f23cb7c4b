"""Streams and waits have places of their own: however many are held, short calls are answered."""

from __future__ import annotations

import contextlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx

from sandloom.sdk.events import frames
from tests.acceptance.worker_fleet import until
from tests.integration.api.servers import Api

STREAMS, WAITS = 4, 3
EVENTS = "/api/v1/sandboxes/box/exec/run-1/events"
RECORD = "/api/v1/sandboxes/box/exec/run-1"


def hold_everything(api: Api, http: httpx.Client, stack: contextlib.ExitStack) -> tuple[int, list, list]:
    """Take every stream and every wait of a QUEUED command; returns generation, streams and pending waits."""
    generation = api.ready_sandbox(client=http)
    body = {"exec_id": "run-1", "generation": generation, "argv": ["true"], "background": True, "exec_scope": "one"}
    assert http.post("/api/v1/sandboxes/box/exec", json=body).status_code == 202
    streams = []
    for _ in range(STREAMS):
        response = stack.enter_context(http.stream("GET", EVENTS))
        arriving = frames(response.iter_raw())
        assert next(arriving).id == "1"
        streams.append((response, arriving))
    pool = ThreadPoolExecutor(WAITS)
    stack.callback(pool.shutdown)
    settled = threading.Event()
    waits = [pool.submit(wait_for_run, http, settled) for _ in range(WAITS)]
    while not every_wait_is_taken(http):
        pass
    settled.set()
    return generation, streams, waits


def wait_for_run(http: httpx.Client, settled: threading.Event) -> str:
    """The status after a wait; one that found no place while the others settle tries again."""
    while True:
        status = http.get(RECORD, params={"wait": 100}, timeout=120).json()["status"]
        if settled.is_set() or status != "QUEUED":
            return str(status)


def every_wait_is_taken(http: httpx.Client) -> bool:
    """Whether a long poll of two seconds for what does not come is answered before its time."""
    began = time.monotonic()
    http.get(EVENTS, params={"wait": 2, "after": 1})
    return time.monotonic() - began < 2


def test_short_calls_are_answered_while_every_place_is_held(small_api: Api) -> None:
    with contextlib.ExitStack() as stack:
        http = stack.enter_context(small_api.client())
        generation, streams, waits = hold_everything(small_api, http, stack)
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda _: http.get("/api/v1/sandboxes/box").status_code, range(40)))
        assert answers == [200] * 40
        refused = http.get(EVENTS)
        assert (refused.status_code, refused.json()["code"]) == (503, "SANDBOX_STREAM_LIMIT")
        assert int(refused.headers["Retry-After"]) >= 1
        body = {"exec_id": "run-2", "generation": generation, "argv": ["true"], "exec_scope": "two"}
        unwaited = http.post("/api/v1/sandboxes/box/exec", json=body)
        assert (unwaited.status_code, unwaited.json()["status"]) == (202, "QUEUED")
        small_api.owner.finish(small_api.owner.claim("box", "run-1", generation))
        for _, arriving in streams:
            assert [frame.event for frame in arriving] == ["status", "status", "end"]
        assert [wait.result() for wait in waits] == ["SUCCEEDED"] * WAITS


def test_a_client_that_goes_away_frees_its_place(small_api: Api) -> None:
    with contextlib.ExitStack() as stack:
        http = stack.enter_context(small_api.client())
        _, streams, _ = hold_everything(small_api, http, stack)
        streams[0][0].close()
        until(lambda: is_served(http))
        record = small_api.owner.claim("box", "run-1", 1)
        small_api.owner.finish(record)


def is_served(http: httpx.Client) -> bool:
    with http.stream("GET", EVENTS) as response:
        return response.status_code == 200


def test_a_stop_wakes_streams_and_waits(small_api: Api) -> None:
    with contextlib.ExitStack() as stack:
        http = stack.enter_context(small_api.client())
        _, streams, waits = hold_everything(small_api, http, stack)
        small_api.stop()
        for _, arriving in streams:
            # Cut off, not ended: the command goes on, and the client comes back with its cursor.
            assert [frame.event for frame in arriving] == []
        assert [wait.result() for wait in waits] == ["QUEUED"] * WAITS
        http.close()
        if small_api.process is not None:
            assert small_api.process.wait() == 0
