"""Pages of a directory of any size, in bounded memory.

Up to 10,000 entries come sorted by name. Larger directories come in the file system's own order, since sorting each
page would read them whole each time; the cursor then is the kernel's position, from which the next page starts at once.
"""

from __future__ import annotations

import base64
import binascii
import ctypes
import heapq
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from sandloom.execution.file_entries import Entry, entry_of
from sandloom.execution.file_faults import FaultKind, FileFault
from sandloom.execution.paths import SandboxPath

SORTED_ENTRIES = 10_000
_BUFFER_BYTES = 64 << 10
_HEADER = struct.Struct("=QqHB")  # linux_dirent64: inode, position after it, record length, type; then the name
_libc = ctypes.CDLL(None, use_errno=True)
_getdents = getattr(_libc, "getdents64", None) or _libc.getdents  # musl has only the second, with the same records
_getdents.restype = ctypes.c_ssize_t


@dataclass(frozen=True, slots=True)
class Page:
    """``total`` is None above 10,000 entries; ``cursor`` is None on the last page.

    Entries that vanish while the page is made are left out, so a page can be shorter than asked although more follow.
    """

    entries: list[Entry]
    total: int | None
    has_more: bool
    cursor: str | None


def list_page(fd: int, directory: SandboxPath, limit: int, offset: int, cursor: str | None) -> Page:
    """The page after ``cursor``, or from ``offset`` on. Raises FileFault(CURSOR_INVALID) and OSError.

    Following cursors shows each entry that stays in place exactly once; with offsets that holds while nothing changes.
    """
    kind, value = _decode(cursor) if cursor is not None else ("", b"")
    if kind == "p":
        return _by_position(fd, directory, limit, 0, _position(value))
    names = list(islice((name for name, _ in _entries(fd)), SORTED_ENTRIES + 1))
    total = len(names) if len(names) <= SORTED_ENTRIES else None
    if kind == "n" or total is not None:
        return _by_name(fd, directory, limit, offset, value if kind else None, names, total)
    return _by_position(fd, directory, limit, offset, 0)


def _by_name(
    fd: int, directory: SandboxPath, limit: int, offset: int, after: bytes | None, names: list[bytes], total: int | None
) -> Page:
    if total is None:
        # Grew past the bound between two pages: what was begun in this order goes on in it.
        every = (name for name, _ in _entries(fd))
        found = heapq.nsmallest(limit + 1, (name for name in every if after is None or name > after))
    else:
        found = sorted(name for name in names if after is None or name > after)
        found = found if after is not None else found[offset:]
    shown = found[:limit]
    has_more = len(found) > limit
    following = _encode("n", shown[-1]) if has_more else None
    return Page(_look_up(fd, directory, shown), total, has_more, following)


def _by_position(fd: int, directory: SandboxPath, limit: int, offset: int, start: int) -> Page:
    found = list(islice(_entries(fd, start), offset, offset + limit + 1))
    shown = found[:limit]
    has_more = len(found) > limit
    following = _encode("p", str(shown[-1][1]).encode()) if has_more else None
    return Page(_look_up(fd, directory, [name for name, _ in shown]), None, has_more, following)


def _look_up(fd: int, directory: SandboxPath, names: list[bytes]) -> list[Entry]:
    entries = []
    for name in names:
        try:
            found = os.stat(name, dir_fd=fd, follow_symlinks=False)
        except FileNotFoundError:
            continue
        entries.append(entry_of(directory.child(name), found))
    return entries


def _entries(fd: int, start: int = 0) -> Iterator[tuple[bytes, int]]:
    """Names without ``.`` and ``..``, each with the position that follows it."""
    os.lseek(fd, start, os.SEEK_SET)
    buffer = ctypes.create_string_buffer(_BUFFER_BYTES)
    while True:
        filled = _getdents(fd, buffer, ctypes.c_size_t(_BUFFER_BYTES))
        if filled < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        if filled == 0:
            return
        yield from _records(buffer.raw[:filled])


def _records(data: bytes) -> Iterator[tuple[bytes, int]]:
    at = 0
    while at < len(data):
        _, position, length, _ = _HEADER.unpack_from(data, at)
        name = data[at + _HEADER.size : at + length].partition(b"\0")[0]
        if name not in (b".", b".."):
            yield name, position
        at += length


def _encode(kind: str, value: bytes) -> str:
    return base64.urlsafe_b64encode(kind.encode() + value).decode().rstrip("=")


def _decode(cursor: str) -> tuple[str, bytes]:
    try:
        raw = base64.b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4), b"-_", validate=True)
    except (UnicodeEncodeError, binascii.Error):
        raise _cursor_invalid() from None
    if raw[:1] not in (b"n", b"p"):
        raise _cursor_invalid()
    return raw[:1].decode(), raw[1:]


def _position(value: bytes) -> int:
    if not value.isdigit() or int(value[:20]) >= 1 << 63 or len(value) > 19:
        raise _cursor_invalid()
    return int(value)


def _cursor_invalid() -> FileFault:
    return FileFault(FaultKind.CURSOR_INVALID, "the cursor is not one that a listing gave")
