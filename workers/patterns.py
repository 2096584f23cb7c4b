"""Regular expressions of callers, by RE2: in time linear in what is searched, and in bounded memory."""

from __future__ import annotations

import re2

from sandloom.errors import ValidationFailed
from sandloom.execution.line_search import Search

_MAX_BYTES = 2 << 20


def line_search(pattern: str) -> Search:
    """The pattern, matched line by line. Raises ValidationFailed."""
    options = re2.Options()
    options.max_mem = _MAX_BYTES
    options.never_nl = True
    options.log_errors = False
    try:
        # A flag of its own, so that the pattern may begin with others.
        compiled = re2.compile(f"(?m){pattern}", options)
    except re2.error as error:
        reason = error.args[0] if error.args else "not understood"
        text = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        raise ValidationFailed(errors=[{"field": "pattern", "message": f"is no RE2 expression: {text}"}]) from None
    finally:
        # It keeps what it compiled: many callers' patterns would add up.
        re2.purge()

    def search(data: bytes, start: int) -> tuple[int, int] | None:
        found = compiled.search(data, start)
        return None if found is None else (found.start(), found.end())

    return search
