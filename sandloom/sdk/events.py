"""The events of a command, and how they come over the wire."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any


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


class FrameReader:
    """Server-sent events of a byte stream; comments, and a frame cut off at the end, are left out."""

    def __init__(self) -> None:
        self._rest = b""
        self._fields: dict[str, list[str]] = {}

    def feed(self, chunk: bytes) -> list[Frame]:
        """The frames that this chunk completes."""
        found: list[Frame] = []
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for raw in lines:
            line = raw.rstrip(b"\r").decode("utf-8", "replace")
            if not line:
                if "data" in self._fields or "event" in self._fields:
                    found.append(_frame(self._fields))
                self._fields = {}
            elif not line.startswith(":"):
                name, _, value = line.partition(":")
                self._fields.setdefault(name, []).append(value.removeprefix(" "))
        return found


def frames(chunks: Iterable[bytes]) -> Iterator[Frame]:
    """The frames of a stream that is here whole."""
    reader = FrameReader()
    for chunk in chunks:
        yield from reader.feed(chunk)


def _frame(fields: dict[str, list[str]]) -> Frame:
    return Frame(
        id=fields["id"][-1] if "id" in fields else None,
        event=fields.get("event", ["message"])[-1],
        data="\n".join(fields.get("data", [])),
    )


def event_of(frame: Frame) -> Event | None:
    """The event of a frame that is one."""
    if frame.id is None or not frame.id.isdigit():
        return None
    data = json.loads(frame.data) if frame.data else {}
    return Event(int(frame.id), frame.event, data if isinstance(data, dict) else {"value": data})
