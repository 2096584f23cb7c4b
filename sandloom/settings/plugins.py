"""Parts that others bring, by entry point."""

from __future__ import annotations

from collections.abc import Callable
from importlib import metadata
from typing import Any

from sandloom.errors import SettingsInvalid


def plugin(group: str, name: str, variable: str) -> Callable[[Any], Any]:
    """What the entry point ``name`` of ``group`` names: ``create(settings)``. Raises SettingsInvalid, naming
    ``variable``, when it is missing, doubled or no callable."""
    found = list(metadata.entry_points(group=group, name=name))
    if len(found) != 1:
        raise SettingsInvalid(f"{variable}: {len(found)} entry points of {group} have this name; one must")
    create = found[0].load()
    if not callable(create):
        raise SettingsInvalid(f"{variable}: the entry point is not callable")
    return create  # type: ignore[no-any-return]
