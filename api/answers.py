"""Responses from answer models."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from flask import Response
from pydantic import BaseModel

#: Larger bodies go out in pieces, so that each has its own time limit on a slow connection.
_PIECE_BYTES = 256 * 1024


def answer(model: BaseModel, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """``model`` as JSON."""
    return bytes_answer(model.model_dump_json().encode(), "application/json", status, headers)


def bytes_answer(
    data: bytes, content_type: str, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """``data`` as it is."""
    body = data if len(data) <= _PIECE_BYTES else _pieces(data)
    response = Response(body, status=status, content_type=content_type, headers=dict(headers or {}))
    response.content_length = len(data)
    return response


def no_answer(status: int) -> Response:
    """Nothing, and so of no content type."""
    response = Response(status=status)
    del response.headers["Content-Type"]
    return response


def _pieces(data: bytes) -> Iterator[bytes]:
    view = memoryview(data)
    for start in range(0, len(data), _PIECE_BYTES):
        yield bytes(view[start : start + _PIECE_BYTES])
