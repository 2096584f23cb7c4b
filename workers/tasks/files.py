"""Files of a sandbox: one fenced call each."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

from pydantic import Field

from sandloom.contracts.files import FileBody, FileDeleteBody, FileWriteBody, MkdirBody, MoveBody, ReplaceBody, shown
from sandloom.contracts.rest import Name  # fmt: skip
from sandloom.errors import FileTooLarge, ValidationFailed
from sandloom.execution.files import SandboxFiles
from workers.answers import entry_answer, page_answer
from workers.reception import Lane
from workers.tasks.requests import Call, public


class PathArgs(FileBody):
    sandbox_id: Name


class ReadArgs(PathArgs):
    max_bytes: Annotated[int, Field(ge=0)] | None = None


class ListArgs(PathArgs):
    limit: Annotated[int, Field(ge=1, le=100_000)] = 200
    offset: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0
    cursor: str | None = None


class WriteArgs(FileWriteBody):
    sandbox_id: Name


class MkdirArgs(MkdirBody):
    sandbox_id: Name


class DeleteArgs(FileDeleteBody):
    sandbox_id: Name


class MoveArgs(MoveBody):
    sandbox_id: Name


class ReplaceArgs(ReplaceBody):
    sandbox_id: Name


@contextmanager
def looking(call: Call[Any]) -> Iterator[SandboxFiles]:
    """The files, for a call that changes nothing; fenced."""
    with call.node.homes.files(call.sandbox, call.args.generation) as files:
        call.node.sandboxes.touch(call.node.identity.fence(call.sandbox, call.args.generation))
        yield files


@contextmanager
def changing(call: Call[Any]) -> Iterator[SandboxFiles]:
    """The files, for a call that changes something: done once per operation id."""
    with call.node.homes.files(call.sandbox, call.args.generation) as files:
        fence = call.node.identity.fence(call.sandbox, call.args.generation)
        call.node.sandboxes.touch(fence, call.envelope.op_id)
        yield files


@public("sandloom.files.read", Lane.FILES, ReadArgs)
def read(call: Call[ReadArgs]) -> dict[str, Any]:
    most = call.node.settings.max_file_api_bytes
    limit = most if call.args.max_bytes is None else min(call.args.max_bytes, most)
    with looking(call) as files:
        data = files.read(call.args.place, limit)
    return {"path": shown(call.args.place), "content_base64": base64.b64encode(data).decode()}


@public("sandloom.files.write", Lane.FILES, WriteArgs)
def write(call: Call[WriteArgs]) -> dict[str, Any]:
    data = _content(call.args.content_base64)
    most = call.node.settings.max_file_api_bytes
    if len(data) > most:
        raise FileTooLarge(limit_bytes=most)
    call.node.tenants.demand_room(call.tenant_id)
    with changing(call) as files:
        size_bytes = files.write(call.args.place, data, 0o600 if call.args.mode is None else call.args.mode)
    return {"path": shown(call.args.place), "size_bytes": size_bytes}


@public("sandloom.files.list", Lane.FILES, ListArgs)
def list_directory(call: Call[ListArgs]) -> dict[str, Any]:
    args = call.args
    with looking(call) as files:
        return page_answer(shown(args.place), files.listing(args.place, args.limit, args.offset, args.cursor))


@public("sandloom.files.stat", Lane.FILES, PathArgs)
def stat(call: Call[PathArgs]) -> dict[str, Any]:
    with looking(call) as files:
        return entry_answer(files.stat(call.args.place))


@public("sandloom.files.mkdir", Lane.FILES, MkdirArgs)
def mkdir(call: Call[MkdirArgs]) -> dict[str, Any]:
    with changing(call) as files:
        files.mkdir(call.args.place, call.args.parents)
    return {"path": shown(call.args.place)}


@public("sandloom.files.delete", Lane.FILES, DeleteArgs)
def delete(call: Call[DeleteArgs]) -> dict[str, Any]:
    with changing(call) as files:
        files.delete(call.args.place, call.args.recursive)
    return {"path": shown(call.args.place)}


@public("sandloom.files.move", Lane.FILES, MoveArgs)
def move(call: Call[MoveArgs]) -> dict[str, Any]:
    source, destination = call.args.source_place, call.args.destination_place
    with changing(call) as files:
        files.move(source, destination, call.args.overwrite)
    return {"source": shown(source), "destination": shown(destination)}


@public("sandloom.files.replace", Lane.FILES, ReplaceArgs)
def replace(call: Call[ReplaceArgs]) -> dict[str, Any]:
    args = call.args
    with changing(call) as files:
        times, size_bytes = files.replace(args.place, args.old.encode(), args.new.encode(), args.count)
    return {"path": shown(args.place), "replacements": times, "size_bytes": size_bytes}


def _content(text: str) -> bytes:
    try:
        return base64.b64decode(text.encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError):
        raise ValidationFailed(errors=[{"field": "content_base64", "message": "is not base64"}]) from None
