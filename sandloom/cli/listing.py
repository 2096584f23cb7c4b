"""Lists that the service gives page by page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol, TypeVar

from sandloom.contracts.rest import RouteAnswer
from sandloom.sandboxes.states import SandboxStatus
from sandloom.sdk import Client

T = TypeVar("T", covariant=True)
Row = TypeVar("Row")
STATUSES = tuple(status.value for status in SandboxStatus)
NOT_RELEASED = tuple(status for status in STATUSES if status != SandboxStatus.RELEASED)
_PAGE = 200


class Pages(Protocol[T]):
    def __call__(self, *, limit: int, offset: int) -> Sequence[T]: ...


def sandboxes(
    client: Client, statuses: Sequence[str | None], limit: int, *, search: str | None = None
) -> tuple[list[RouteAnswer], bool]:
    """``first`` of these statuses, one after the other, each with the newest in front. None: any status."""
    lists = [partial(client.sandboxes, status=status, search=search) for status in statuses]
    return first(lists, lambda route: route.sandbox_id, limit)


def first(lists: Sequence[Pages[Row]], key: Callable[[Row], str], limit: int) -> tuple[list[Row], bool]:
    """At most ``limit`` rows of the lists, and whether there are more. What moves from page to page, because others
    come before it, is there once."""
    found: dict[str, Row] = {}
    size = min(_PAGE, limit + 1)
    for pages in lists:
        offset = 0
        while len(found) <= limit:
            rows = pages(limit=size, offset=offset)
            found |= {key(row): row for row in rows}
            if len(rows) < size:
                break
            offset += size
    return list(found.values())[:limit], len(found) > limit
