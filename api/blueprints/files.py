"""Files of a sandbox, as JSON."""

from __future__ import annotations

import base64
import binascii

from flask import Response

from api import raises
from api.answers import answer
from api.operations import Call, Group
from api.queries import FileQuery, GlobQuery, ListQuery, NoQuery
from sandloom.contracts.files import (
    FileChange,
    FileContent,
    FileDeleteBody,
    FileEntry,
    FileList,
    FileWriteBody,
    GlobAnswer,
    GrepAnswer,
    GrepBody,
    MkdirBody,
    MoveAnswer,
    MoveBody,
    ReplaceAnswer,
    ReplaceBody,
    shown,
)
from sandloom.contracts.refusals import invalid
from sandloom.errors import FileTooLarge
from sandloom.settings import Settings
from sandloom.tenants.records import KeyScope

group = Group("files", "Files")


def _write_limit(settings: Settings) -> int:
    """Base64 of the largest file, line breaks of no encoder, and the other fields."""
    return settings.max_file_api_bytes * 4 // 3 + 256 * 1024


@group.operation(
    "PUT", "/sandboxes/<sandbox_id>/files", {200: FileChange}, body_limit=_write_limit, raises=raises.WRITTEN
)
def write_file(call: Call, sandbox_id: str, query: NoQuery, body: FileWriteBody) -> Response:
    """Replace a file at once; its parent must exist."""
    data = _content(body.content_base64, call.services.settings.max_file_api_bytes)
    call.services.tenants.demand_room(call.tenant_id)
    changed = call.services.files.write(call.sandbox(sandbox_id), body.generation, body.place, data, body.mode)
    return answer(FileChange.model_validate(changed))


@group.operation("GET", "/sandboxes/<sandbox_id>/files", {200: FileContent}, raises=raises.READ)
def read_file(call: Call, sandbox_id: str, query: FileQuery) -> Response:
    """Read a regular file."""
    data = call.services.files.read(call.sandbox(sandbox_id), query.generation, query.place)
    return answer(FileContent.model_construct(path=shown(query.place), content_base64=base64.b64encode(data).decode()))


@group.operation("GET", "/sandboxes/<sandbox_id>/files/list", {200: FileList}, raises=raises.LISTED)
def list_files(call: Call, sandbox_id: str, query: ListQuery) -> Response:
    """List a directory by what its entries are, not by what links point to."""
    limit = _list_limit(call, query.limit, 200)
    listing = call.services.files.list(
        call.sandbox(sandbox_id), query.generation, query.place, limit, query.offset, query.cursor
    )
    return answer(FileList.model_validate(listing))


@group.operation("GET", "/sandboxes/<sandbox_id>/files/stat", {200: FileEntry}, raises=raises.AT_PATH)
def stat_file(call: Call, sandbox_id: str, query: FileQuery) -> Response:
    """Describe one entry by lstat."""
    found = call.services.files.stat(call.sandbox(sandbox_id), query.generation, query.place)
    return answer(FileEntry.model_validate(found))


@group.operation("POST", "/sandboxes/<sandbox_id>/files/mkdir", {200: FileChange}, raises=raises.MADE)
def make_directory(call: Call, sandbox_id: str, query: NoQuery, body: MkdirBody) -> Response:
    """Make a directory."""
    made = call.services.files.mkdir(call.sandbox(sandbox_id), body.generation, body.place, body.parents)
    return answer(FileChange.model_validate(made))


@group.operation("POST", "/sandboxes/<sandbox_id>/files/delete", {200: FileChange}, raises=raises.DELETED)
def delete_file(call: Call, sandbox_id: str, query: NoQuery, body: FileDeleteBody) -> Response:
    """Delete a file, a link (not its target) or a directory."""
    gone = call.services.files.delete(call.sandbox(sandbox_id), body.generation, body.place, body.recursive)
    return answer(FileChange.model_validate(gone))


@group.operation("POST", "/sandboxes/<sandbox_id>/files/move", {200: MoveAnswer}, raises=raises.MOVED)
def move_file(call: Call, sandbox_id: str, query: NoQuery, body: MoveBody) -> Response:
    """Move or rename an entry."""
    moved = call.services.files.move(
        call.sandbox(sandbox_id), body.generation, body.source_place, body.destination_place, body.overwrite
    )
    return answer(MoveAnswer.model_validate(moved))


@group.operation("GET", "/sandboxes/<sandbox_id>/files/glob", {200: GlobAnswer}, raises=raises.AT_PATH)
def glob_files(call: Call, sandbox_id: str, query: GlobQuery) -> Response:
    """Find entries below a directory by a pattern of their paths."""
    limit = _list_limit(call, query.limit, 1000)
    found = call.services.files.glob(call.sandbox(sandbox_id), query.generation, query.path, query.pattern, limit)
    return answer(GlobAnswer.model_validate(found))


@group.operation(
    "POST",
    "/sandboxes/<sandbox_id>/files/grep",
    {200: GrepAnswer},
    scope=KeyScope.READ,
    raises=raises.AT_PATH,
)
def grep_files(call: Call, sandbox_id: str, query: NoQuery, body: GrepBody) -> Response:
    """Find lines in a file, or in the files below a directory, by a regular expression."""
    found = call.services.files.grep(
        call.sandbox(sandbox_id), body.generation, body.place, body.pattern, body.glob, body.max_matches
    )
    return answer(GrepAnswer.model_validate(found))


@group.operation("POST", "/sandboxes/<sandbox_id>/files/replace", {200: ReplaceAnswer}, raises=raises.READ)
def replace_in_file(call: Call, sandbox_id: str, query: NoQuery, body: ReplaceBody) -> Response:
    """Replace a text in a file by another, at once."""
    changed = call.services.files.replace(
        call.sandbox(sandbox_id), body.generation, body.place, body.old, body.new, body.count
    )
    return answer(ReplaceAnswer.model_validate(changed))


def _list_limit(call: Call, wanted: int | None, otherwise: int) -> int:
    most = call.services.settings.max_list_entries
    if wanted is not None and wanted > most:
        raise invalid("limit", f"should be less than or equal to {most}")
    return min(otherwise, most) if wanted is None else wanted


def _content(text: str, most_bytes: int) -> bytes:
    try:
        data = base64.b64decode(text.encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError):
        raise invalid("content_base64", "is not base64") from None
    if len(data) > most_bytes:
        raise FileTooLarge(limit_bytes=most_bytes)
    return data
