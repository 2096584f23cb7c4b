"""How one setting is declared: its default, its bounds and the sentence that documents it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.config import JsonDict

KIB, MIB, GIB = 1024, 1024**2, 1024**3
PREFIX = "SANDBOX_"


class Group(BaseModel):
    """A part of the settings. Groups share one flat name space; ``Settings`` inherits them all."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, validate_default=False)


def setting(default: Any, meaning: str, *, shown: str | None = None, **bounds: Any) -> Any:
    """A documented field.

    ``shown`` replaces the default in the reference page where the real one is derived when the settings are loaded.
    ``bounds`` are pydantic constraints (``ge``, ``le``, ``min_length`` …).
    """
    extra: JsonDict = {"shown": shown} if shown is not None else {}
    return Field(default, description=" ".join(meaning.split()), json_schema_extra=extra, **bounds)


def parse_list(value: object) -> object:
    """``a,b,c`` or a JSON array as a tuple of texts; anything else is left for the type check to refuse."""
    if not isinstance(value, str):
        return value
    text = value.strip()
    if text.startswith("["):
        try:
            items = json.loads(text)
        except ValueError:
            raise ValueError("is neither a list a,b,c nor a JSON array") from None
        if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
            raise ValueError("the JSON array may hold texts only")
        return tuple(items)
    return tuple(part.strip() for part in text.split(",") if part.strip())


def unique(items: tuple[str, ...]) -> tuple[str, ...]:
    """The items without repeats, in order."""
    return tuple(dict.fromkeys(items))


def one_of(*known: str) -> Callable[[tuple[str, ...]], tuple[str, ...]]:
    """A check that every item of a list is known."""

    def check(items: tuple[str, ...]) -> tuple[str, ...]:
        if any(item not in known for item in items):
            raise ValueError(f"holds an unknown name; known are {', '.join(known)}")
        return unique(items)

    return check


TextList = Annotated[tuple[str, ...], BeforeValidator(parse_list)]
