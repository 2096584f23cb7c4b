"""Taking a tar archive apart as its bytes arrive, in bounded memory. Pure."""

from __future__ import annotations

from typing import Protocol

from sandloom.execution.file_faults import FileFault
from sandloom.execution.tar_format import (
    BLOCK_BYTES,
    Header,
    Member,
    damaged,
    decode,
    long_name,
    padding,
    parse_pax,
)  # fmt: skip

#: Names, link targets and whatever else stands in front of one entry.
MAX_EXTENSION_BYTES = 256 * 1024
_COMPRESSED = {b"\x1f\x8b": "gzip", b"BZ": "bzip2", b"\xfd7": "xz", b"\x28\xb5": "zstd"}


class Sink(Protocol):
    """What becomes of an archive. Each member is begun, given its content in pieces, and ended."""

    def begin(self, member: Member) -> None: ...

    def data(self, piece: memoryview) -> None: ...

    def end(self) -> None: ...


class TarReader:
    """Feed it, then ``finish``. Raises FileFault(ARCHIVE_INVALID) and what the sink raises."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._block = bytearray()
        self._records: dict[bytes, bytes] = {}
        self._extension: Header | None = None
        self._extension_data = bytearray()
        self._left = 0  # of the content of this entry
        self._skip = 0  # up to the next block
        self._first = True
        self._zeros = 0
        self._done = False

    def feed(self, data: bytes) -> None:
        view = memoryview(data)
        while view and not self._done:
            if self._left:
                view = self._take_content(view)
            elif self._skip:
                skipped = min(self._skip, len(view))
                self._skip -= skipped
                view = view[skipped:]
            else:
                view = self._take_header(view)

    def finish(self) -> None:
        if not self._done:
            self._refuse_compressed(bytes(self._block))
            raise damaged("the archive ends in the middle; what came before is extracted")

    def _take_content(self, view: memoryview) -> memoryview:
        piece = view[: self._left]
        self._left -= len(piece)
        if self._extension is None:
            self._sink.data(piece)
        else:
            self._extension_data += piece
        if not self._left:
            self._end_content()
        return view[len(piece) :]

    def _end_content(self) -> None:
        if self._extension is None:
            self._sink.end()
            return
        kind, data = self._extension.type, bytes(self._extension_data)
        self._extension = None
        self._extension_data.clear()
        if kind == b"x":
            self._records |= parse_pax(data)
        elif kind == b"g":
            parse_pax(data)  # says nothing that is kept: an archive must not rename all its entries
        else:
            self._records[b"path" if kind == b"L" else b"linkpath"] = long_name(data)

    def _take_header(self, view: memoryview) -> memoryview:
        wanted = BLOCK_BYTES - len(self._block)
        self._block += view[:wanted]
        if len(self._block) == BLOCK_BYTES:
            block = bytes(self._block)
            self._block.clear()
            self._on_block(block)
        return view[wanted:]

    def _refuse_compressed(self, block: bytes) -> None:
        form = _COMPRESSED.get(block[:2]) if self._first else None
        if form is not None:
            raise damaged(f"the body is compressed with {form}; send the plain tar archive")

    def _on_block(self, block: bytes) -> None:
        try:
            header = decode(block)
        except FileFault:
            self._refuse_compressed(block)
            raise
        self._first = False
        if header is None:
            self._zeros += 1
            self._done = self._zeros == 2
            return
        self._zeros = 0
        if header.type in (b"x", b"g", b"L", b"K"):
            self._begin_extension(header)
        else:
            self._begin_member(header)

    def _begin_extension(self, header: Header) -> None:
        held = sum(map(len, self._records.values()))
        if header.size_bytes + held > MAX_EXTENSION_BYTES:
            raise damaged(f"names and attributes of an entry take more than {MAX_EXTENSION_BYTES} bytes")
        self._extension = header
        self._begin_content(header.size_bytes)

    def _begin_member(self, header: Header) -> None:
        member = header.member(self._records)
        self._records = {}
        self._sink.begin(member)
        self._begin_content(member.size_bytes)

    def _begin_content(self, size_bytes: int) -> None:
        self._left, self._skip = size_bytes, padding(size_bytes)
        if not size_bytes:
            self._end_content()
