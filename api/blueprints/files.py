"""Files of a sandbox, as JSON."""

from __future__ import annotations

import base64
import binascii

from flask import Response

from api.answers import answer
from api.operations import Call, Group
from api.queries import FileQuery, ListQuery, NoQuery
from api.validation import invalid
from sandloom.contracts.rest import (
    FileChange,
    FileContent,
    FileDeleteBody,
    FileEntry,
    FileList,
    FileWriteBody,
    MkdirBody,
    MoveAnswer,
    MoveBody,
)
from sandloom.errors import FileTooLarge
from sandloom.settings import Settings

group = Group("files", "Files")


def _write_limit(settings: Settings) -> int:
    """Base64 of the largest file, line breaks of no encoder, and the other fields."""
    return settings.max_file_api_bytes * 4 // 3 + 256 * 1024


@group.operation("PUT", "/sandboxes/<sandbox_id>/files", {200: FileChange}, body_limit=_write_limit)
def write_file(call: Call, sandbox_id: str, query: NoQuery, body: FileWriteBody) -> Response:
    """Replace a file at once; its parent must exist."""
    data = _content(body.content_base64, call.services.settings.max_file_api_bytes)
    changed = call.services.files.write(call.sandbox(sandbox_id), body.generation, body.path, data, body.mode)
    return answer(FileChange.model_validate(changed))


@group.operation("GET", "/sandboxes/<sandbox_id>/files", {200: FileContent})
def read_file(call: Call, sandbox_id: str, query: FileQuery) -> Response:
    """Read a regular file."""
    data = call.services.files.read(call.sandbox(sandbox_id), query.generation, query.path)
    return answer(FileContent.model_construct(path=query.path, content_base64=base64.b64encode(data).decode()))


@group.operation("GET", "/sandboxes/<sandbox_id>/files/list", {200: FileList})
def list_files(call: Call, sandbox_id: str, query: ListQuery) -> Response:
    """List a directory by what its entries are, not by what links point to."""
    most = call.services.settings.max_list_entries
    limit = min(200, most) if query.limit is None else query.limit
    if limit > most:
        raise invalid("limit", f"should be less than or equal to {most}")
    listing = call.services.files.list(
        call.sandbox(sandbox_id), query.generation, query.path, limit, query.offset, query.cursor
    )
    return answer(FileList.model_validate(listing))


@group.operation("GET", "/sandboxes/<sandbox_id>/files/stat", {200: FileEntry})
def stat_file(call: Call, sandbox_id: str, query: FileQuery) -> Response:
    """Describe one entry by lstat."""
    found = call.services.files.stat(call.sandbox(sandbox_id), query.generation, query.path)
    return answer(FileEntry.model_validate(found))


@group.operation("POST", "/sandboxes/<sandbox_id>/files/mkdir", {200: FileChange})
def make_directory(call: Call, sandbox_id: str, query: NoQuery, body: MkdirBody) -> Response:
    """Make a directory."""
    made = call.services.files.mkdir(call.sandbox(sandbox_id), body.generation, body.path, body.parents)
    return answer(FileChange.model_validate(made))


@group.operation("POST", "/sandboxes/<sandbox_id>/files/delete", {200: FileChange})
def delete_file(call: Call, sandbox_id: str, query: NoQuery, body: FileDeleteBody) -> Response:
    """Delete a file, a link (not its target) or a directory."""
    gone = call.services.files.delete(call.sandbox(sandbox_id), body.generation, body.path, body.recursive)
    return answer(FileChange.model_validate(gone))


@group.operation("POST", "/sandboxes/<sandbox_id>/files/move", {200: MoveAnswer})
def move_file(call: Call, sandbox_id: str, query: NoQuery, body: MoveBody) -> Response:
    """Move or rename an entry."""
    moved = call.services.files.move(
        call.sandbox(sandbox_id), body.generation, body.source, body.destination, body.overwrite
    )
    return answer(MoveAnswer.model_validate(moved))


def _content(text: str, most_bytes: int) -> bytes:
    try:
        data = base64.b64decode(text.encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError):
        raise invalid("content_base64", "is not base64") from None
    if len(data) > most_bytes:
        raise FileTooLarge(limit_bytes=most_bytes)
    return data
