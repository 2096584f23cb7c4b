"""What a doorbell says, of any message that claims to be one."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from sandloom.broker.message import RING_VERSION
from sandloom.ids import ExecKey

_NAMES = ("tenant_id", "sandbox_id", "exec_id")
_FIELDS = frozenset({*_NAMES, "v", "generation"})
_MAX_NAME_CHARACTERS = 191


@dataclass(frozen=True, slots=True)
class Doorbell:
    """Whatever it names, only the row decides what runs."""

    key: ExecKey
    generation: int


def read(message: Any) -> Doorbell | None:
    """The doorbell in a message of kombu's; None when it is none of ours."""
    try:
        _args, kwargs, _embed = json.loads(message.body)
    except (ValueError, TypeError, RecursionError):
        return None
    return doorbell(kwargs)


def doorbell(kwargs: object) -> Doorbell | None:
    """The doorbell that these arguments make."""
    if not isinstance(kwargs, dict) or set(kwargs) != _FIELDS:
        return None
    version, generation = kwargs["v"], kwargs["generation"]
    if version != RING_VERSION or type(version) is not int or type(generation) is not int:
        return None
    names = [name for field in _NAMES if isinstance(name := kwargs[field], str) and len(name) <= _MAX_NAME_CHARACTERS]
    return Doorbell(ExecKey(*names), generation) if len(names) == len(_NAMES) else None
