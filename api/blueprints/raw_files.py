"""Files of a sandbox as streams of bytes, in constant memory."""

from __future__ import annotations

from collections.abc import Iterator

from flask import Response

from api import raises
from api.answers import answer
from api.byte_stream import body_pieces
from api.operations import Call, Group
from api.queries import FileQuery, RawWriteQuery
from api.slots import Slot
from sandloom.contracts.files import ArchiveAnswer, FileChange
from sandloom.errors import BodyTooLarge, StreamLimit

group = Group("raw_files", "Files")
_BYTES = "application/octet-stream"
_TAR = "application/x-tar"


@group.operation(
    "GET",
    "/sandboxes/<sandbox_id>/files/raw",
    {200: _BYTES, 206: _BYTES},
    request_headers={"Range": "One range of bytes."},
    answer_headers={
        200: ("Accept-Ranges", "Content-Disposition"),
        206: ("Accept-Ranges", "Content-Disposition", "Content-Range"),
    },
    raises=raises.RANGE,
)
def read_raw_file(call: Call, sandbox_id: str, query: FileQuery) -> Response:
    """Stream a regular file, or one range of it."""
    slot = _slot(call)
    try:
        raw = call.services.files.open_raw(
            call.sandbox(sandbox_id), query.generation, query.place, call.request.headers.get("Range")
        )
    except BaseException:
        slot.release()
        raise
    response = Response(raw.chunks, status=206 if raw.partial else 200, content_type=_BYTES)
    response.content_length = raw.length
    response.headers["Accept-Ranges"] = "bytes"
    response.headers["Content-Disposition"] = "attachment"
    if raw.partial:
        response.headers["Content-Range"] = f"bytes {raw.start}-{raw.start + raw.length - 1}/{raw.size}"
    response.call_on_close(raw.close)
    response.call_on_close(slot.release)
    return response


@group.operation("PUT", "/sandboxes/<sandbox_id>/files/raw", {200: FileChange}, raw_body=True, raises=raises.UPLOADED)
def write_raw_file(call: Call, sandbox_id: str, query: RawWriteQuery) -> Response:
    """Replace a file at once with the bytes of the body."""
    most = call.services.settings.max_raw_file_bytes
    length = call.request.content_length
    if length is not None and length > most:
        raise BodyTooLarge(limit_bytes=most)
    call.services.tenants.demand_room(call.tenant_id)
    mode = None if query.mode is None else int(query.mode, 8)
    with _slot(call):
        pieces: Iterator[bytes] = body_pieces(call.request, most)
        changed = call.services.files.put_raw(
            call.sandbox(sandbox_id), query.generation, query.place, pieces, length, mode
        )
    return answer(FileChange.model_validate(changed))


@group.operation(
    "GET",
    "/sandboxes/<sandbox_id>/archive",
    {200: _TAR},
    answer_headers={200: ("Content-Disposition",)},
    raises=raises.TRANSFERRED,
)
def read_archive(call: Call, sandbox_id: str, query: FileQuery) -> Response:
    """Stream the content of a directory, or a file, as a tar archive."""
    slot = _slot(call)
    try:
        archive = call.services.files.open_archive(call.sandbox(sandbox_id), query.generation, query.place)
    except BaseException:
        slot.release()
        raise
    response = Response(archive.chunks, content_type=_TAR)
    response.headers["Content-Disposition"] = "attachment"
    response.call_on_close(archive.close)
    response.call_on_close(slot.release)
    return response


@group.operation("PUT", "/sandboxes/<sandbox_id>/archive", {200: ArchiveAnswer}, raw_body=True, raises=raises.EXTRACTED)
def write_archive(call: Call, sandbox_id: str, query: FileQuery) -> Response:
    """Extract a tar archive into a directory; links are stored and never followed."""
    call.services.tenants.demand_room(call.tenant_id)
    with _slot(call):
        pieces = body_pieces(call.request, call.services.settings.max_raw_file_bytes)
        counts = call.services.files.put_archive(call.sandbox(sandbox_id), query.generation, query.place, pieces)
    return answer(ArchiveAnswer.model_validate(counts))


def _slot(call: Call) -> Slot:
    """A transfer holds its thread for as long as the client likes, as a stream does."""
    slot = call.services.streams.take(call.principal.guest)
    if slot is None:
        raise StreamLimit
    return slot
