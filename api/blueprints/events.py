"""The event stream of a command."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from flask import Response

from api import raises
from api.answers import answer, no_answer
from api.connection import client_watch
from api.event_formats import EVENTS, FORMATS, NDJSON, SSE
from api.event_log import EventReader, first_page, parse_cursor
from api.event_poll import EventPoll, poll_events
from api.fence import fence
from api.operations import Call, Group
from api.queries import EventsQuery
from sandloom.errors import StreamLimit, Unavailable
from sandloom.execs.records import EventPage
from sandloom.ids import ExecKey

group = Group("events", "Commands")
HEARTBEAT_SECONDS = 15.0
_STREAM_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


@group.operation(
    "GET",
    "/sandboxes/<sandbox_id>/exec/<exec_id>/events",
    {200: {"application/json": EventPoll, **EVENTS}, 204: ""},
    request_headers={"Last-Event-ID": "The last seq that the client has; goes before `after`."},
    answer_headers={200: ("X-Accel-Buffering",)},
    raises=raises.STREAMED,
)
def exec_events(call: Call, sandbox_id: str, exec_id: str, query: EventsQuery) -> Response:
    """Follow a command's events as SSE, as NDJSON by `Accept`, or with `wait` as one JSON answer."""
    fence(call, sandbox_id, query.generation)
    key = ExecKey(*call.sandbox(sandbox_id), exec_id)
    after = parse_cursor(call.request.headers.get("Last-Event-ID"), query.after)
    page = first_page(call.services, key, after)
    if page.terminal and after == page.last_seq:
        return no_answer(204)
    gone = client_watch(call.request.environ)
    if query.wait is not None:
        seconds = min(query.wait, call.services.settings.max_foreground_wait_seconds)
        page = poll_events(call.services, call.principal.guest, key, page, after, seconds, gone)
        return answer(EventPoll.of(page, after))
    wanted = call.request.accept_mimetypes.best_match([SSE, NDJSON], default=SSE)
    if call.request.method == "HEAD":
        return Response(content_type=wanted, headers=_STREAM_HEADERS)
    return _stream(call, key, page, after, gone, wanted)


def _stream(
    call: Call, key: ExecKey, page: EventPage, after: int, gone: Callable[[], bool], content_type: str
) -> Response:
    slot = call.services.streams.take(call.principal.guest)
    if slot is None:
        raise StreamLimit
    with ExitStack() as held:
        held.callback(slot.release)
        watch = held.enter_context(call.services.bus.watch(key))
        slot.hold(watch)
        if not page.events:
            # What came before the watch is not told by it.
            page = first_page(call.services, key, after)
        over = _unless_the_key_works(call, gone)
        reader = EventReader(call.services, key, page, after, watch, slot, over, HEARTBEAT_SECONDS)
        response = Response(FORMATS[content_type](reader), content_type=content_type, headers=_STREAM_HEADERS)
        # Also called when the client leaves before the first byte.
        response.call_on_close(held.pop_all().close)
        return response


def _unless_the_key_works(call: Call, gone: Callable[[], bool]) -> Callable[[], bool]:
    """``gone``, or true as soon as the caller's key was revoked or has expired: a stream outlives many of them."""
    key_id, keys = call.principal.key_id, call.services.keys
    if key_id is None:
        return gone

    def over() -> bool:
        if gone():
            return True
        try:
            return not keys.works(key_id)
        except Unavailable:
            return False

    return over
