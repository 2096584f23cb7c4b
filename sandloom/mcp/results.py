"""Results of the tools that REST has no model for: they are bounded, since a model has to read them."""

from __future__ import annotations

import base64
from typing import Any

from pydantic import Field

from sandloom.contracts.rest import Answer, UsageAnswer

_UTF8_BYTES = 4


class ProfileResult(Answer):
    """What the deployment's sandboxes can do; ``capabilities`` as a live worker found them."""

    status: str
    version: str
    live_workers: int
    profile_hash: str | None
    capabilities: dict[str, Any] | None


class Output(Answer):
    """A part of a stream. Offsets count characters, with replacement where it is not UTF-8."""

    text: str
    offset: int
    total_chars: int = Field(description="what the stream holds so far")
    next_offset: int | None = Field(description="where the rest begins; null: there is none")


class ExecResult(Answer):
    sandbox_id: str
    exec_id: str
    generation: int
    status: str = Field(description="QUEUED, RUNNING, SUCCEEDED, FAILED, TIMED_OUT, CANCELLED or WORKER_LOST")
    finished: bool
    exit_code: int | None
    signal: int | None
    reason: str | None
    detail: str | None
    error: str | None
    stdout: Output
    stderr: Output
    truncated: bool = Field(description="the command wrote more than the service keeps")
    duration_ms: int | None
    usage: UsageAnswer | None


class WriteResult(Answer):
    path: str
    size_bytes: int


class ReadResult(Answer):
    """A part of a file: ``content`` when it is text, else ``content_base64``. Offsets count bytes."""

    path: str
    size_bytes: int
    offset: int
    content: str | None
    content_base64: str | None
    next_offset: int | None = Field(description="where the rest begins; null: there is none")


def output(text: str, offset: int, limit: int) -> Output:
    """At most ``limit`` characters of ``text`` from ``offset``, which counts from the end when it is negative."""
    start = max(len(text) + offset, 0) if offset < 0 else min(offset, len(text))
    end = min(start + limit, len(text))
    return Output(
        text=text[start:end], offset=start, total_chars=len(text), next_offset=end if end < len(text) else None
    )


def file_part(path: str, data: bytes, offset: int, size_bytes: int) -> ReadResult:
    """``data`` was read from ``offset``. A character that is cut at the end is left for the next part."""
    text, length = _text(data, more=offset + len(data) < size_bytes)
    end = offset + length
    return ReadResult(
        path=path,
        size_bytes=size_bytes,
        offset=offset,
        content=text,
        content_base64=base64.b64encode(data).decode() if text is None else None,
        next_offset=end if end < size_bytes else None,
    )


def _text(data: bytes, *, more: bool) -> tuple[str | None, int]:
    """The text and how many bytes it is of; None for what is not text."""
    if b"\x00" in data:
        return None, len(data)
    try:
        return data.decode(), len(data)
    except UnicodeDecodeError as error:
        cut = more and error.reason == "unexpected end of data" and 0 < error.start >= len(data) - _UTF8_BYTES
        return (data[: error.start].decode(), error.start) if cut else (None, len(data))
