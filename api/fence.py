"""The generation that a caller may name where it need not."""

from __future__ import annotations

from api.operations import Call


def fence(call: Call, sandbox_id: str, generation: int | None) -> None:
    """Raises StaleRoute when the caller names a generation that is not the current one; without one nothing."""
    if generation is not None:
        call.services.sandboxes.current(call.sandbox(sandbox_id), generation)
