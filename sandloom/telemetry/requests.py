"""The id that ties an answer to the log lines of the API and of the worker."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from sandloom.ids import new_id

_SANE = re.compile(r"[A-Za-z0-9_.:-]{1,128}\Z")
_current: ContextVar[str | None] = ContextVar("sandloom_request_id", default=None)


def is_request_id(text: str | None) -> bool:
    """Whether a caller's id may be used as it is: 1 to 128 of ``[A-Za-z0-9_.:-]``."""
    return text is not None and _SANE.match(text) is not None


def new_request_id() -> str:
    return new_id()


def current_request_id() -> str | None:
    """The id of the request that this thread or task works for."""
    return _current.get()


@contextmanager
def request_id(value: str | None) -> Iterator[str]:
    """Log lines inside carry this id; one that is missing or not sane is replaced by a new one."""
    chosen = value if value is not None and is_request_id(value) else new_request_id()
    token = _current.set(chosen)
    try:
        yield chosen
    finally:
        _current.reset(token)
