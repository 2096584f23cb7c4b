"""Long polls for events: for clients that can do neither SSE nor NDJSON."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic import Field

from api.event_formats import event_entry
from api.event_log import first_page
from api.services import Services
from sandloom.clock import monotonic_seconds
from sandloom.contracts.rest import Answer
from sandloom.execs.records import EventPage
from sandloom.ids import ExecKey

_SLICE_SECONDS = 2.0


class EventEntry(Answer):
    id: int = Field(description="the seq")
    event: str
    data: dict[str, Any]


class EventPoll(Answer):
    """Events behind the cursor. ``ended``: nothing comes after these."""

    events: list[EventEntry]
    next: int = Field(description="the cursor for the next call")
    ended: bool

    @classmethod
    def of(cls, page: EventPage, after: int) -> EventPoll:
        next_cursor = page.events[-1].seq if page.events else after
        entries = [EventEntry(**event_entry(event)) for event in page.events]
        return cls(events=entries, next=next_cursor, ended=page.terminal and next_cursor >= page.last_seq)


def poll_events(
    services: Services, guest: str | None, key: ExecKey, page: EventPage, after: int, seconds: float,
    gone: Callable[[], bool],
) -> EventPage:  # fmt: skip
    """The first page that has events or the end, at the latest after ``seconds``."""
    slot = services.waits.take(guest) if seconds > 0 and not page.events else None
    if slot is None:
        return page
    until = monotonic_seconds() + seconds
    with slot, services.bus.watch(key) as watch:
        slot.hold(watch)
        while True:
            page = first_page(services, key, after)
            left = until - monotonic_seconds()
            if page.events or page.terminal or left <= 0 or slot.stopping or gone():
                return page
            watch.wait(min(left, _SLICE_SECONDS))
