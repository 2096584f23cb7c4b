"""A raw body piece by piece, for bodies too large for memory."""

from __future__ import annotations

from collections.abc import Iterator

from flask import Request

from api.connection import client_socket
from api.read_deadlines import READ_DEADLINES
from sandloom.errors import BodyTooLarge, MalformedRequest, RequestTimeout

_PIECE_BYTES = 256 * 1024
#: Each piece must arrive within this time, so an upload that stalls or trickles ends.
_PIECE_SECONDS = 30.0


def body_pieces(request: Request, limit_bytes: int) -> Iterator[bytes]:
    """The body. Raises BodyTooLarge beyond the limit, RequestTimeout when it stalls, MalformedRequest when cut off."""
    announced = request.content_length
    left = limit_bytes + 1 if announced is None else announced
    if announced is None and not request.environ.get("wsgi.input_terminated"):
        return
    while left > 0:
        piece = _read(request, min(left, _PIECE_BYTES))
        if not piece:
            break
        left -= len(piece)
        if announced is None and left <= 0:
            raise BodyTooLarge(limit_bytes=limit_bytes)
        yield piece
    if announced is not None and left > 0:
        raise MalformedRequest("The body ended before its announced length.")


def _read(request: Request, size: int) -> bytes:
    with READ_DEADLINES.limit(client_socket(request.environ), _PIECE_SECONDS) as deadline:
        try:
            piece: bytes = request.environ["wsgi.input"].read(size)
        except TimeoutError:
            raise RequestTimeout from None
        except Exception:  # each server has its own exceptions for a broken chunk or a closed connection
            raise MalformedRequest("The body could not be read to its end.") from None
    if deadline is not None and deadline.passed:
        raise RequestTimeout
    return piece
