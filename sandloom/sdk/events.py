"""The event stream of a command, followed across lost connections."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx

from sandloom.errors import StreamLimit, Unavailable
from sandloom.sdk.transport import Transport, pause_seconds, unreachable

#: The service sends a comment every 15 s, so a longer silence means a dead connection.
_SILENCE_SECONDS = 45.0
#: With their pauses some two minutes, in which an API process is replaced.
_MAX_FAILURES = 30


@dataclass(frozen=True, slots=True)
class Event:
    """``kind`` is status, stdout, stderr, usage, note …; ``data`` as the REST contract says."""

    seq: int
    kind: str
    data: dict[str, Any]

    @property
    def bytes(self) -> bytes:
        """The exact output of a stdout or stderr event; empty for other kinds."""
        if "base64" in self.data:
            return base64.b64decode(self.data["base64"])
        return str(self.data.get("text", "")).encode()

    @property
    def text(self) -> str:
        """The output of a stdout or stderr event as text, with replacement."""
        return self.bytes.decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class Frame:
    """One server-sent event as it came over the wire."""

    id: str | None
    event: str
    data: str


def frames(chunks: Iterable[bytes]) -> Iterator[Frame]:
    """Server-sent events of a byte stream; comments, and a frame cut off at the end, are left out."""
    rest = b""
    fields: dict[str, list[str]] = {}
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for raw in lines:
            line = raw.rstrip(b"\r").decode("utf-8", "replace")
            if not line:
                if "data" in fields or "event" in fields:
                    yield _frame(fields)
                fields = {}
            elif not line.startswith(":"):
                name, _, value = line.partition(":")
                fields.setdefault(name, []).append(value.removeprefix(" "))


def _frame(fields: dict[str, list[str]]) -> Frame:
    return Frame(
        id=fields["id"][-1] if "id" in fields else None,
        event=fields.get("event", ["message"])[-1],
        data="\n".join(fields.get("data", [])),
    )


def follow(transport: Transport, path: str, *, after: int = 0) -> Iterator[Event]:
    """Every event with seq > ``after``, exactly once and in order, until the command has ended.

    A lost connection is taken up again after the last event seen. Raises Unavailable when the service stays away.
    """
    cursor, failures = after, 0
    while True:
        try:
            with transport.stream(
                path,
                headers={"Accept": "text/event-stream", "Last-Event-ID": str(cursor)},
                read_timeout_seconds=_SILENCE_SECONDS,
            ) as response:
                if response.status_code == 204:
                    return
                for frame in frames(response.iter_bytes()):
                    if frame.event == "end":
                        return
                    event = _event(frame)
                    if event is None or event.seq <= cursor:
                        continue
                    cursor, failures = event.seq, 0
                    yield event
            failure: Exception = Unavailable("the event stream ended before the command did")
        except httpx.TransportError as error:
            failure = unreachable(error)
        except (Unavailable, StreamLimit) as error:
            failure = error
        failures += 1
        if failures > _MAX_FAILURES:
            raise failure
        time.sleep(pause_seconds(failures))


def _event(frame: Frame) -> Event | None:
    if frame.id is None or not frame.id.isdigit():
        return None
    data = json.loads(frame.data) if frame.data else {}
    return Event(int(frame.id), frame.event, data if isinstance(data, dict) else {"value": data})
