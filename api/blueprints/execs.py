"""Commands: start, look, list, cancel."""

from __future__ import annotations

from flask import Response

from api import raises
from api.answers import answer
from api.connection import client_watch
from api.fence import fence
from api.operations import Call, Group
from api.prefer import foreground_seconds, parse_prefer
from api.queries import ExecQuery, NoQuery, OptionalGeneration, Page
from api.waiting import start_and_wait, wait_for_end
from sandloom.contracts.rest import CancelAnswer, ExecAnswer, ExecBody, ExecList, OptionalGenerationBody
from sandloom.errors import WorkerLost
from sandloom.execs.answers import exec_answer
from sandloom.execs.records import Exec
from sandloom.execs.requests import exec_request
from sandloom.execs.states import ExecStatus
from sandloom.ids import ExecKey

group = Group("execs", "Commands")
#: argv and env at their limits, in UTF-8, with standard input.
_MAX_BODY_BYTES = 48 << 20


@group.operation(
    "POST",
    "/sandboxes/<sandbox_id>/exec",
    {200: ExecAnswer, 202: ExecAnswer},
    body_limit=lambda _settings: _MAX_BODY_BYTES,
    request_headers={"Prefer": "`wait=N` (seconds) bounds the wait, `respond-async` does without it."},
    answer_headers={200: ("Preference-Applied",), 202: ("Preference-Applied", "Location", "Retry-After")},
    raises=raises.STARTED,
)
def start_exec(call: Call, sandbox_id: str, query: NoQuery, body: ExecBody) -> Response:
    """Run a command; 200 with its record when it ended in time, else 202 with the record so far."""
    preference = parse_prefer(call.request.headers.get("Prefer"))
    seconds = foreground_seconds(preference, body.background, call.services.settings.max_foreground_wait_seconds)
    record, _ = start_and_wait(
        call.services, call.principal.guest, call.sandbox(sandbox_id), exec_request(body), body.generation, seconds,
        client_watch(call.request.environ),
    )  # fmt: skip
    return _started(record, preference.applied)


@group.operation("GET", "/sandboxes/<sandbox_id>/exec", {200: ExecList}, raises=raises.KNOWN)
def list_execs(call: Call, sandbox_id: str, query: Page) -> Response:
    """List a sandbox's commands, newest first, without output."""
    records, total = call.services.execs.list(call.sandbox(sandbox_id), query.limit, query.offset)
    page = [exec_answer(record) for record in records]
    return answer(ExecList(execs=page, total=total, limit=query.limit, offset=query.offset))


@group.operation(
    "GET",
    "/sandboxes/<sandbox_id>/exec/<exec_id>",
    {200: ExecAnswer},
    answer_headers={200: ("Retry-After",)},
    raises=raises.OF_EXEC,
)
def get_exec(call: Call, sandbox_id: str, exec_id: str, query: ExecQuery) -> Response:
    """Show a command's record; `wait` answers when it ends, at the latest after that many seconds."""
    fence(call, sandbox_id, query.generation)
    seconds = min(query.wait or 0, call.services.settings.max_foreground_wait_seconds)
    key = ExecKey(*call.sandbox(sandbox_id), exec_id)
    gone = client_watch(call.request.environ)
    record = wait_for_end(call.services, call.principal.guest, key, seconds, gone)
    return answer(exec_answer(record, query.encoding), headers={} if record.terminal else {"Retry-After": "1"})


@group.operation("POST", "/sandboxes/<sandbox_id>/exec/<exec_id>/cancel", {200: CancelAnswer}, raises=raises.OF_EXEC)
def cancel_exec(
    call: Call, sandbox_id: str, exec_id: str, query: OptionalGeneration, body: OptionalGenerationBody | None
) -> Response:
    """End a command, whether it runs or waits; every process of it."""
    generation = (body.generation if body else None) or query.generation
    result = call.services.exec_gateway.cancel(ExecKey(*call.sandbox(sandbox_id), exec_id), generation)
    return answer(CancelAnswer(cancelled=result.cancelled))


def _started(record: Exec, headers: dict[str, str]) -> Response:
    if record.status is ExecStatus.WORKER_LOST:
        raise WorkerLost("The worker was lost while it ran the command; the record says WORKER_LOST.")
    if record.terminal:
        return answer(exec_answer(record), headers=headers)
    place = f"/api/v1/sandboxes/{record.key.sandbox_id}/exec/{record.key.exec_id}"
    return answer(exec_answer(record), 202, {**headers, "Location": place, "Retry-After": "1"})
