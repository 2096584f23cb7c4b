"""Reads an exec's events from a cursor to the end: rows are the truth, the bus only says when to look."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from api.services import Services
from api.slots import Slot
from sandloom.clock import monotonic_seconds
from sandloom.contracts.ports import Watch
from sandloom.errors import CursorAhead, CursorInvalid, EventsPruned
from sandloom.execs.records import Event, EventPage
from sandloom.ids import ExecKey

_CURSOR = re.compile(r"[0-9]{1,18}\Z")
#: What a reader holds of its events at once, however slowly its client takes them.
_PAGE_EVENTS = 500
_PAGE_BYTES = 256 * 1024
#: How often a quiet reader looks whether its client is still there; for lost heads see ``slow_look``.
_SLICE_SECONDS = 5.0


def parse_cursor(last_event_id: str | None, after: str | None) -> int:
    """The last seq the client has. A reconnecting client repeats its old address, so the header goes first."""
    text = last_event_id if last_event_id is not None else after
    if text is None:
        return 0
    if not _CURSOR.match(text):
        raise CursorInvalid
    return int(text)


def first_page(services: Services, key: ExecKey, after: int) -> EventPage:
    """Events behind ``after``. Raises ExecNotFound, CursorAhead, EventsPruned."""
    page = services.execs.events(key, after, _PAGE_EVENTS, _PAGE_BYTES)
    if after > page.last_seq:
        raise CursorAhead(last_seq=page.last_seq)
    if after + 1 < page.first_available_seq:
        raise EventsPruned(first_available_seq=page.first_available_seq)
    return page


def event_data(event: Event) -> Any:
    """``stdout`` and ``stderr`` as ``{text}``, or ``{base64}`` when it is not text; other kinds are JSON already."""
    if event.kind not in ("stdout", "stderr"):
        return json.loads(event.data)
    try:
        return {"text": event.data.decode("utf-8")}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(event.data).decode()}


class EventReader:
    """From ``after`` on, each event once and in order.

    Iterating gives lists of events; an empty one after ``heartbeat_seconds`` of silence. It ends after the terminal
    event, when the client has gone or the process stops; ``finished`` says whether it was the former.
    """

    def __init__(
        self, services: Services, key: ExecKey, first: EventPage, after: int, watch: Watch, slot: Slot,
        gone: Callable[[], bool], heartbeat_seconds: float,
    ) -> None:  # fmt: skip
        self._services = services
        self._key = key
        self._page = first
        self._after = after
        self._watch = watch
        self._slot = slot
        self._gone = gone
        self._heartbeat_seconds = heartbeat_seconds
        self.finished = False

    def __iter__(self) -> Iterator[list[Event]]:
        quiet_since = monotonic_seconds()
        while True:
            events = list(self._page.events)
            if events:
                self._after = events[-1].seq
                quiet_since = monotonic_seconds()
                yield events
            if self._page.terminal and self._after >= self._page.last_seq:
                self.finished = True
                return
            if self._is_over() if events else not self._wait(quiet_since + self._heartbeat_seconds):
                return
            if monotonic_seconds() - quiet_since >= self._heartbeat_seconds:
                quiet_since = monotonic_seconds()
                yield []
            self._page = self._services.execs.events(self._key, self._after, _PAGE_EVENTS, _PAGE_BYTES)

    def _wait(self, until: float) -> bool:
        """Until a head comes, at most to the next sign of life; whether to go on."""
        while (left := until - monotonic_seconds()) > 0:
            head = self._watch.wait(min(_SLICE_SECONDS, left))
            if self._is_over():
                return False
            if head is not None:
                break
        return True

    def _is_over(self) -> bool:
        return self._slot.stopping or self._gone()
