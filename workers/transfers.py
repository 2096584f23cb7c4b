"""Transfers over the byte channel: one fenced call each, in constant memory."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import asdict
from itertools import chain
from typing import Annotated, Any

from pydantic import Field

from sandloom.broker.envelope import Envelope
from sandloom.contracts.files import FileBody, shown
from sandloom.contracts.refusals import validated
from sandloom.contracts.rest import Name
from sandloom.errors import MalformedRequest, RangeNotSatisfiable, RequestTimeout
from sandloom.ids import SandboxKey
from workers.context import NodeContext

PIECE_BYTES = 1 << 18
_RANGE = re.compile(r"bytes=(\d{0,19})-(\d{0,19})\Z")

Environ = dict[str, Any]
StartResponse = Callable[[str, list[tuple[str, str]]], Any]


class RawArgs(FileBody):
    sandbox_id: Name
    worker_id: str
    worker_epoch: int


class RawWriteArgs(RawArgs):
    mode: Annotated[int, Field(ge=0, le=0o777)] | None = None
    max_bytes: Annotated[int, Field(ge=0)]


class Transfer:
    """One request whose envelope is verified. Its methods raise SandloomError and FileFault."""

    def __init__(self, node: NodeContext, envelope: Envelope, environ: Environ, start: StartResponse) -> None:
        self._node = node
        self._envelope = envelope
        self._environ = environ
        self._start = start

    def read(self) -> Iterable[bytes]:
        args = validated(RawArgs, self._envelope.args)
        with ExitStack() as stack:
            files = stack.enter_context(self._node.homes.files(self._key(args), args.generation))
            self._look(args)
            file = stack.enter_context(files.open_read(args.place))
            span = parse_range(self._environ.get("HTTP_RANGE"), file.size_bytes)
            first, length = span or (0, file.size_bytes)
            headers = [("Content-Length", str(length)), ("Accept-Ranges", "bytes")]
            if span is not None:
                headers.append(("Content-Range", f"bytes {first}-{first + length - 1}/{file.size_bytes}"))
            self._begin("206 Partial Content" if span is not None else "200 OK", headers)
            return _Download(file.chunks(first, length), stack.pop_all())

    def write(self) -> Iterable[bytes]:
        args = validated(RawWriteArgs, self._envelope.args)
        most = min(args.max_bytes, self._node.settings.max_raw_file_bytes)
        with self._node.homes.files(self._key(args), args.generation) as files:
            self._claim(args)
            mode = 0o600 if args.mode is None else args.mode
            size_bytes = files.write_stream(args.place, body_pieces(self._environ), mode, most)
        return self._done({"path": shown(args.place), "size_bytes": size_bytes})

    def read_archive(self) -> Iterable[bytes]:
        args = validated(RawArgs, self._envelope.args)
        with ExitStack() as stack:
            files = stack.enter_context(self._node.homes.files(self._key(args), args.generation))
            self._look(args)
            archive = stack.enter_context(files.trees.open_archive(args.place))
            pieces = archive.chunks()
            # What goes wrong at the beginning still has a status of its own.
            first = next(pieces, b"")
            self._begin("200 OK", [])
            return _Download(chain((first,), pieces), stack.pop_all())

    def write_archive(self) -> Iterable[bytes]:
        args = validated(RawArgs, self._envelope.args)
        with self._node.homes.files(self._key(args), args.generation) as files:
            self._claim(args)
            counts = files.trees.extract(args.place, body_pieces(self._environ))
        return self._done({"path": shown(args.place), **asdict(counts)})

    def _key(self, args: RawArgs) -> SandboxKey:
        return SandboxKey(self._envelope.tenant_id, args.sandbox_id)

    def _look(self, args: RawArgs) -> None:
        self._node.sandboxes.touch(self._node.identity.fence(self._key(args), args.generation))

    def _claim(self, args: RawArgs) -> None:
        fence = self._node.identity.fence(self._key(args), args.generation)
        self._node.sandboxes.touch(fence, self._envelope.op_id)

    def _begin(self, status: str, headers: list[tuple[str, str]]) -> None:
        # A download that breaks off must end the connection, or the reader would wait for the rest.
        self._start(status, [("Content-Type", "application/octet-stream"), ("Connection", "close"), *headers])

    def _done(self, body: dict[str, Any]) -> Iterable[bytes]:
        return json_answer("200 OK", body, "application/json", self._start)


class _Download:
    """The bytes of a response; closing it lets the sandbox go, whether or not it was read."""

    def __init__(self, pieces: Iterator[bytes], held: ExitStack) -> None:
        self._pieces = pieces
        self._held = held

    def __iter__(self) -> Iterator[bytes]:
        return self._pieces

    def close(self) -> None:
        self._held.close()


def parse_range(header: str | None, size_bytes: int) -> tuple[int, int] | None:
    """(first byte, length) of a single range; None for none, and for forms that may be ignored.

    Raises RangeNotSatisfiable.
    """
    match = _RANGE.match(header.strip()) if header else None
    if match is None or match.groups() == ("", ""):
        return None
    first, last = match.groups()
    if not first:
        length = min(int(last), size_bytes)
        begin = size_bytes - length
    else:
        begin = int(first)
        end = min(int(last), size_bytes - 1) if last else size_bytes - 1
        if last and int(last) < begin:
            return None
        length = end - begin + 1
    if length <= 0 or begin >= size_bytes:
        raise RangeNotSatisfiable(size_bytes=size_bytes)
    return begin, length


def body_pieces(environ: Environ) -> Iterator[bytes]:
    """The body to its announced end. Raises when the peer stops before."""
    announced = environ.get("CONTENT_LENGTH") or None
    left = int(announced) if announced is not None else None
    while left is None or left > 0:
        try:
            piece = environ["wsgi.input"].read(PIECE_BYTES if left is None else min(left, PIECE_BYTES))
        except TimeoutError:
            raise RequestTimeout from None
        except Exception:  # cheroot's own for a broken chunk, OSError for a closed connection
            raise MalformedRequest("The body could not be read to its end.") from None
        if not piece:
            break
        left = None if left is None else left - len(piece)
        yield piece
    if left:
        raise MalformedRequest("The body ended before its announced length.")


def json_answer(status: str, body: dict[str, Any], content_type: str, start: StartResponse) -> Iterable[bytes]:
    data = json.dumps(body).encode()
    start(status, [("Content-Type", content_type), ("Content-Length", str(len(data))), ("Connection", "close")])
    return [data]
