"""Reads request bodies: bounded in bytes and time, strict about what JSON is."""

from __future__ import annotations

import json
from typing import Any, NoReturn

from flask import Request

from api.connection import client_socket
from api.read_deadlines import READ_DEADLINES
from sandloom.errors import BodyTooLarge, MalformedRequest, RequestTimeout, UnsupportedMediaType, ValidationFailed

#: A whole body must arrive within this time, plus one second for each ``_SLOWEST_BYTES_PER_SECOND`` it announces.
_BASE_SECONDS = 20.0
_SLOWEST_BYTES_PER_SECOND = 64 * 1024
_STEP_BYTES = 1 << 20


def has_body(request: Request) -> bool:
    """Whether the client sends one."""
    return bool(request.content_length) or "Transfer-Encoding" in request.headers


def read_json(request: Request, limit_bytes: int) -> Any:
    """The JSON value of the body. Raises UnsupportedMediaType, BodyTooLarge, RequestTimeout, MalformedRequest."""
    if request.mimetype != "application/json":
        raise UnsupportedMediaType
    return parse_json(read_body(request, limit_bytes))


def read_body(request: Request, limit_bytes: int) -> bytes:
    """The whole body. Raises BodyTooLarge as soon as it is known to be larger, RequestTimeout, MalformedRequest."""
    announced = request.content_length
    if announced is not None and announced > limit_bytes:
        raise BodyTooLarge(limit_bytes=limit_bytes)
    seconds = _BASE_SECONDS + (limit_bytes if announced is None else announced) / _SLOWEST_BYTES_PER_SECOND
    with READ_DEADLINES.limit(client_socket(request.environ), seconds) as deadline:
        data = _read(request, announced, limit_bytes)
    if deadline is not None and deadline.passed:
        raise RequestTimeout
    if announced is not None and len(data) < announced:
        raise MalformedRequest("The body ended before its announced length.")
    if len(data) > limit_bytes:
        raise BodyTooLarge(limit_bytes=limit_bytes)
    return data


def _read(request: Request, announced: int | None, limit_bytes: int) -> bytes:
    """Up to the announced length, or one byte more than the limit."""
    source = request.environ["wsgi.input"]
    wanted = limit_bytes + 1 if announced is None else announced
    if announced is None and not request.environ.get("wsgi.input_terminated"):
        return b""
    pieces: list[bytes] = []
    try:
        while wanted > 0 and (piece := source.read(min(wanted, _STEP_BYTES))):
            pieces.append(piece)
            wanted -= len(piece)
    except TimeoutError:
        raise RequestTimeout from None
    except Exception:  # each server has its own exceptions for a broken chunk or a closed connection
        raise MalformedRequest("The body could not be read to its end.") from None
    return b"".join(pieces)


def parse_json(data: bytes) -> Any:
    """Strict JSON in UTF-8: no NaN or Infinity, no duplicate keys, no endless numbers, bounded nesting."""
    try:
        return json.loads(data.decode("utf-8"), object_pairs_hook=_object, parse_constant=_no_constant)
    except UnicodeDecodeError:
        raise MalformedRequest("The body is not UTF-8.") from None
    except RecursionError:
        raise MalformedRequest("The body is nested too deeply.") from None
    except json.JSONDecodeError as error:
        raise MalformedRequest(f"The body is not JSON: {error.msg} at character {error.pos}.") from None
    except ValueError:
        raise MalformedRequest("The body holds a number with too many digits.") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise MalformedRequest("The body names a field twice.")
    for name in found:
        if not name.isascii():
            _encodable(name)
    return found


def _encodable(name: str) -> None:
    try:
        name.encode()
    except UnicodeEncodeError:
        raise ValidationFailed(errors=[{"field": "", "message": "a field name holds a lone surrogate"}]) from None


def _no_constant(_name: str) -> NoReturn:
    raise MalformedRequest("The body holds NaN or Infinity, which JSON does not have.")
