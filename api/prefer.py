"""The ``Prefer`` header (RFC 7240) and who has to wait how long."""

from __future__ import annotations

import re
from dataclasses import dataclass

_WAIT = re.compile(r"wait\s*=\s*\"?([0-9]{1,9})\"?\Z", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Preference:
    """``wait_seconds`` is None where the client named none. What is malformed is ignored, as the RFC asks."""

    respond_async: bool = False
    wait_seconds: int | None = None

    @property
    def applied(self) -> dict[str, str]:
        """The ``Preference-Applied`` header."""
        words = ["respond-async"] if self.respond_async else []
        if self.wait_seconds is not None:
            words.append(f"wait={self.wait_seconds}")
        return {"Preference-Applied": ", ".join(words)} if words else {}


def parse_prefer(header: str | None) -> Preference:
    respond_async, wait_seconds = False, None
    for part in (header or "")[:1024].split(","):
        word = part.split(";")[0].strip()
        match = _WAIT.match(word)
        if match and wait_seconds is None:
            wait_seconds = int(match[1])
        respond_async = respond_async or word.lower() == "respond-async"
    return Preference(respond_async, wait_seconds)


def foreground_seconds(preference: Preference, background: bool, longest_seconds: int) -> int:
    """How long the answer to a new command may take to come."""
    if background:
        return 0
    if preference.wait_seconds is not None:
        return min(preference.wait_seconds, longest_seconds)
    return 0 if preference.respond_async else longest_seconds
