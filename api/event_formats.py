"""The same events as server-sent events, as NDJSON and as one JSON answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from pydantic import Field
from pydantic.json_schema import SkipJsonSchema

from api.event_log import event_data
from sandloom.contracts.rest import Answer
from sandloom.execs.records import Event

SSE = "text/event-stream"
NDJSON = "application/x-ndjson"


class Batches(Protocol):
    """What an ``EventReader`` gives: lists of events, empty ones when it is quiet, and whether it reached the end."""

    finished: bool

    def __iter__(self) -> Iterator[list[Event]]: ...


class SentEvent(Answer):
    """A server-sent event. The last one is `end`, without an id."""

    id: str | SkipJsonSchema[None] = Field(None, description="the seq")
    event: str
    data: str = Field(description="a JSON object, in one line")


class EventLine(Answer):
    """An event as a line of its own; empty lines say that the stream lives. The last one is `end`, without an id."""

    id: int | SkipJsonSchema[None] = Field(None, description="the seq")
    event: str
    data: dict[str, Any]


#: As they are documented.
EVENTS: dict[str, type[Answer]] = {SSE: SentEvent, NDJSON: EventLine}


def event_entry(event: Event) -> dict[str, Any]:
    return {"id": event.seq, "event": event.kind, "data": event_data(event)}


def sse(reader: Batches) -> Iterator[bytes]:
    """``id``, ``event`` and ``data`` of each; a comment when it is quiet; ``end`` without an id when it is over."""
    # Sent at once, so that the client and every proxy see that the stream is open.
    yield b"retry: 1000\n\n"
    for events in reader:
        yield b"".join(map(_sse_event, events)) or b": still here\n\n"
    if reader.finished:
        yield b"event: end\ndata: {}\n\n"


def ndjson(reader: Batches) -> Iterator[bytes]:
    """One object per line; an empty line when it is quiet."""
    for events in reader:
        yield b"".join(_line(event_entry(event)) for event in events) or b"\n"
    if reader.finished:
        yield _line({"event": "end", "data": {}})


FORMATS: dict[str, Callable[[Batches], Iterator[bytes]]] = {SSE: sse, NDJSON: ndjson}


def _sse_event(event: Event) -> bytes:
    return f"id: {event.seq}\nevent: {event.kind}\ndata: {_json(event_data(event))}\n\n".encode()


def _line(value: Any) -> bytes:
    return _json(value).encode() + b"\n"


def _json(value: Any) -> str:
    # ASCII, because some clients take U+0085 and U+2028 for line breaks; so one event is always one line of data.
    return json.dumps(value, separators=(",", ":"))
