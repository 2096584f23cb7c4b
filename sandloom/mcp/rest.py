"""Calls of the REST interface as values, and what carries them out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from pydantic import JsonValue, TypeAdapter

_JSON: TypeAdapter[JsonValue] = TypeAdapter(JsonValue)


@dataclass(frozen=True, slots=True)
class Ask:
    """``path`` is below ``/api/v1``, but for ``/healthz``. The answer may take ``wait_seconds`` to come.

    ``safe``: repeating it does no harm.
    """

    method: str
    path: str
    body: Mapping[str, Any] | None = None
    query: Mapping[str, str | int] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    wait_seconds: int = 0
    safe: bool = False


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer with a status below 400."""

    headers: Mapping[str, str]
    content: bytes

    def json(self) -> JsonValue:
        return _JSON.validate_json(self.content)


class Rest(Protocol):
    async def __call__(self, ask: Ask) -> Reply:
        """Raises the SandloomError of any other answer."""
        ...
