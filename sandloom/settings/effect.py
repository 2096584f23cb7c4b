"""Settings of parts that do not exist yet: known, checked, and without effect; whoever sets one is told."""

from __future__ import annotations

from collections.abc import Mapping

NO_EFFECT_YET = frozenset({"mcp_allowed_hosts"})


def without_effect(origins: Mapping[str, str]) -> tuple[str, ...]:
    """A line for each setting that was given and does nothing."""
    given = sorted(name for name, origin in origins.items() if origin in ("environment", ".env", "option"))
    return tuple(f"SANDBOX_{name.upper()} has no effect in this release" for name in given if name in NO_EFFECT_YET)
