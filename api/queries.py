"""Query strings as models; unknown parameters are refused like unknown fields."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, StrictBool, StrictInt

from sandloom.contracts.files import Pattern, PlaceBody
from sandloom.contracts.rest import Body, SandboxPath, ScopeId, Text
from sandloom.sandboxes.states import SandboxStatus

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
