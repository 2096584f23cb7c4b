"""Query strings as models; unknown parameters are refused like unknown fields."""

from __future__ import annotations

import re
from datetime import date
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, StrictBool, StrictInt

from sandloom.contracts.files import Pattern, PlaceBody
from sandloom.contracts.rest import Body, Name, SandboxPath, ScopeId, Text
from sandloom.sandboxes.states import SandboxStatus

_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}\Z")
_DIGITS = re.compile(r"[0-9]{1,19}\Z")


def _whole(value: object) -> object:
    """A decimal number as it is written in a query; anything else is left for the type to refuse."""
    return int(value) if isinstance(value, str) and _DIGITS.match(value) else value


def _flag(value: object) -> object:
    return {"true": True, "1": True, "false": False, "0": False}.get(str(value).lower(), value)


#: For a StrictInt with its bounds. It stands last: bounds behind it would be missing in the OpenAPI document.
Whole = BeforeValidator(_whole)
Flag = Annotated[StrictBool, BeforeValidator(_flag)]
QueryGeneration = Annotated[StrictInt, Field(ge=1, le=2**63 - 1), Whole]
Offset = Annotated[StrictInt, Field(ge=0, le=2**31 - 1), Whole]
Limit = Annotated[StrictInt, Field(ge=1), Whole]
WaitSeconds = Annotated[
    StrictInt, Field(ge=0, le=86_400, description="seconds; bounded by the deployment's longest wait"), Whole
]


class Page(Body):
    limit: Annotated[StrictInt, Field(ge=1, le=200), Whole] = 50
    offset: Offset = 0


class SandboxPage(Page):
    status: SandboxStatus | None = None
    workspace_scope_id: ScopeId | None = None
    search: Annotated[Text, Field(max_length=191)] | None = None


def _day(value: object) -> object:
    if isinstance(value, str) and not _DAY.match(value):
        raise ValueError("must be a day, as 2026-01-31")
    return value


def _groups(value: object) -> object:
    return tuple(value.split(",")) if isinstance(value, str) else value


def _distinct(groups: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(groups)) != len(groups):
        raise ValueError("must not repeat a group")
    return groups


Day = Annotated[date, BeforeValidator(_day), Field(ge=date(1970, 1, 1), le=date(9999, 1, 1))]
UsageGroups = Annotated[
    tuple[Literal["tenant", "scope", "sandbox", "day"], ...], BeforeValidator(_groups), AfterValidator(_distinct)
]


class UsageQuery(Page):
    since: Annotated[Day | None, Field(description="the first day, UTC")] = None
    until: Annotated[Day | None, Field(description="the last day; today unless given")] = None
    group_by: Annotated[UsageGroups, Field(description="of tenant, scope, sandbox, day; with commas")] = ()
    label: Annotated[
        str | None, Field(pattern=r"^[A-Za-z0-9_.:/-]{1,64}$", description="group by the value of this label, too")
    ] = None
    workspace_scope_id: ScopeId | None = None
    sandbox_id: Name | None = None
    all_tenants: Annotated[Flag, Field(description="operators only")] = False


class OptionalGeneration(Body):
    generation: QueryGeneration | None = None


class ExecQuery(OptionalGeneration):
    wait: WaitSeconds | None = None
    encoding: Literal["utf-8", "base64"] = "utf-8"


class EventsQuery(OptionalGeneration):
    # A cursor has its own error, so its form is judged by the route.
    after: str | None = Field(default=None, description="the last seq that the client has; 0 is the beginning")
    wait: WaitSeconds | None = None


class FileQuery(PlaceBody):
    generation: QueryGeneration


class ListQuery(FileQuery):
    limit: Limit | None = None
    offset: Offset = 0
    cursor: Annotated[Text, Field(max_length=4096)] | None = None


class GlobQuery(Body):
    pattern: Pattern
    path: SandboxPath = "/workspace"
    generation: QueryGeneration
    limit: Limit | None = None


class RawWriteQuery(FileQuery):
    mode: Annotated[str, Field(pattern=r"^0?[0-7]{3}$")] | None = None


class NoQuery(Body):
    """No parameters at all."""
