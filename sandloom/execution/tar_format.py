"""The headers of tar archives: POSIX ustar with pax records, and GNU's long names when reading. Pure."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from sandloom.execution.file_faults import FaultKind, FileFault

BLOCK_BYTES = 512
END = bytes(2 * BLOCK_BYTES)
#: name, mode, uid, gid, size, time, checksum, type, link, magic, user, group, device numbers, prefix
_HEADER = struct.Struct("100s8s8s8s12s12s8sc100s8s32s32s8s8s155s12x")
_MAGIC = b"ustar\x0000"
_MAX_OCTAL = 8**11 - 1
_SHORT_BYTES = 100
MAX_SIZE_BYTES = 1 << 62
_LATEST_SECONDS = 253_402_300_799  # the end of the year 9999


class MemberType(Enum):
    """What an entry of an archive is."""

    FILE = "file"
    DIRECTORY = "directory"
    SYMLINK = "symlink"
    HARD_LINK = "hard link"
    OTHER = "other"  # FIFOs, devices and what only one program writes


_WRITTEN = {MemberType.FILE: b"0", MemberType.DIRECTORY: b"5", MemberType.SYMLINK: b"2"}
_READ = {
    b"0": MemberType.FILE,
    b"\0": MemberType.FILE,
    b"7": MemberType.FILE,
    b"1": MemberType.HARD_LINK,
    b"2": MemberType.SYMLINK,
    b"5": MemberType.DIRECTORY,
}

_WITHOUT_CONTENT = frozenset((b"1", b"2", b"3", b"4", b"5", b"6"))  # whatever their size field says


@dataclass(frozen=True, slots=True)
class Member:
    """One entry. ``name`` and ``target`` are bytes as the archive has them; ``size_bytes`` of content follow it."""

    name: bytes
    type: MemberType
    size_bytes: int = 0
    mode: int = 0o644
    modified_seconds: int = 0
    target: bytes = b""


@dataclass(frozen=True, slots=True)
class Header:
    """A header block. ``type`` is its letter; what it says may be overruled by pax records before it."""

    name: bytes
    type: bytes
    size_bytes: int
    mode: int
    modified_seconds: int
    target: bytes

    def member(self, records: Mapping[bytes, bytes]) -> Member:
        """The entry, given the ``records`` that went before it. Raises FileFault(ARCHIVE_INVALID)."""
        name = records.get(b"path", self.name)
        kind = _READ.get(self.type, MemberType.OTHER)
        if self.type == b"S" or any(key.startswith(b"GNU.sparse.") for key in records):
            raise damaged(f"{shown(name)} is stored as a sparse file; make the archive without --sparse")
        if self.type == b"\0" and name.endswith(b"/"):
            kind = MemberType.DIRECTORY  # as archives older than POSIX write it
        size_bytes = self.size_bytes
        if b"size" in records:
            size_bytes = _decimal(records[b"size"], "the size of an entry")
        if self.type in _WITHOUT_CONTENT or kind is MemberType.DIRECTORY:
            size_bytes = 0
        target = records.get(b"linkpath", self.target)
        return Member(name, kind, size_bytes, self.mode & 0o777, _seconds(records, self.modified_seconds), target)


def damaged(detail: str) -> FileFault:
    return FileFault(FaultKind.ARCHIVE_INVALID, detail)


def shown(name: bytes) -> str:
    return name[:200].decode("utf-8", "replace")


def padding(size_bytes: int) -> int:
    """How many bytes follow content of that size up to the next block."""
    return -size_bytes % BLOCK_BYTES


def encode(member: Member) -> bytes:
    """The header blocks of an entry. What does not fit the old fields goes into pax records before it."""
    records: dict[bytes, bytes] = {}
    if len(member.name) > _SHORT_BYTES:
        records[b"path"] = member.name
    if len(member.target) > _SHORT_BYTES:
        records[b"linkpath"] = member.target
    if member.size_bytes > _MAX_OCTAL:
        records[b"size"] = b"%d" % member.size_bytes
    return _pax_blocks(records) + _block(member, _WRITTEN[member.type])


def _pax_blocks(records: Mapping[bytes, bytes]) -> bytes:
    """The records as an entry of their own, nothing for none."""
    if not records:
        return b""
    if not all(_is_utf8(value) for value in records.values()):
        records = {b"hdrcharset": b"BINARY", **records}
    body = b"".join(_pax_record(key, value) for key, value in records.items())
    header = _block(Member(b"pax", MemberType.FILE, len(body)), b"x")
    return header + body + bytes(padding(len(body)))


def _pax_record(key: bytes, value: bytes) -> bytes:
    bare = len(key) + len(value) + 3
    length = bare
    while length != (whole := bare + len(str(length))):
        length = whole
    return b"%d %s=%s\n" % (length, key, value)


def _block(member: Member, kind: bytes) -> bytes:
    block = _HEADER.pack(
        member.name[:_SHORT_BYTES], b"%07o" % (member.mode & 0o777), b"0000000", b"0000000",
        b"%011o" % min(member.size_bytes, _MAX_OCTAL), b"%011o" % min(max(member.modified_seconds, 0), _MAX_OCTAL),
        b"        ", kind, member.target[:_SHORT_BYTES], _MAGIC, b"", b"", b"0000000", b"0000000", b"",
    )  # fmt: skip
    return block[:148] + b"%06o\0 " % sum(block) + block[156:]


def decode(block: bytes) -> Header | None:
    """The header in a block, None for a block of zeros. Raises FileFault(ARCHIVE_INVALID)."""
    if not any(block):
        return None
    fields: tuple[Any, ...] = _HEADER.unpack(block)
    name, mode, _, _, size, modified, checksum, kind, target, magic, *_, prefix = fields
    if not _is_checksum(block, _number(checksum, "a checksum")):
        raise damaged("the archive is damaged, or is no tar archive at all: a header's checksum is wrong")
    name = _text(name)
    if magic == _MAGIC and prefix[0]:
        name = _text(prefix) + b"/" + name
    return Header(
        name, kind, _number(size, "the size of an entry"), _number(mode, "a mode"), _time(modified), _text(target)
    )


def parse_pax(data: bytes) -> dict[bytes, bytes]:
    """The records of a pax entry. Raises FileFault(ARCHIVE_INVALID)."""
    records: dict[bytes, bytes] = {}
    at = 0
    while at < len(data) and data[at]:
        space = data.find(b" ", at, at + 12)
        length = _decimal(data[at:space], "a pax record's length") if space > 0 else 0
        end = at + length
        key, equals, value = data[space + 1 : end - 1].partition(b"=")
        if not key or not equals or end > len(data) or data[end - 1] != 0x0A:
            raise damaged("the archive has a broken pax record")
        records[key] = value
        at = end
    return records


def long_name(data: bytes) -> bytes:
    """The content of GNU's entries for long names."""
    return _text(data)


def _is_checksum(block: bytes, checksum: int) -> bool:
    """Of bytes as unsigned or, as some old programs took them, as signed."""
    rest = block[:148] + b"        " + block[156:]
    unsigned = sum(rest)
    return checksum == unsigned or checksum == unsigned - 256 * sum(byte > 127 for byte in rest)


def _number(field: bytes, what: str) -> int:
    """Octal digits, or GNU's big-endian binary form. Raises FileFault for what is negative or too large."""
    if field[0] & 0x80:
        value = int.from_bytes(field[1:], "big") if field[0] == 0x80 else -1
    else:
        digits = field.split(b"\0", 1)[0].strip(b" ")
        if digits.strip(b"01234567"):
            raise damaged(f"the archive says {what} in a way that is no number")
        value = int(digits or b"0", 8)
    if not 0 <= value <= MAX_SIZE_BYTES:
        raise damaged(f"the archive says {what} as a negative or impossible number")
    return value


def _time(field: bytes) -> int:
    """Times before 1970 are written in forms that programs do not agree on; they become 1970."""
    return 0 if field[0] & 0x80 else min(_number(field, "a time"), _LATEST_SECONDS)


def _decimal(text: bytes, what: str) -> int:
    if not text.isdigit() or len(text) > 19 or int(text) > MAX_SIZE_BYTES:
        raise damaged(f"the archive says {what} in a way that is no number")
    return int(text)


def _seconds(records: Mapping[bytes, bytes], otherwise: int) -> int:
    whole = records.get(b"mtime", b"").partition(b".")[0]
    return min(int(whole), _LATEST_SECONDS) if whole.isdigit() and len(whole) < 19 else otherwise


def _text(field: bytes) -> bytes:
    return field.split(b"\0", 1)[0]


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True
