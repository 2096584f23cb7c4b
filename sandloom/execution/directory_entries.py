"""What a directory holds, read through its descriptor piece by piece, in the file system's own order."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterator
from typing import NamedTuple

_BUFFER_BYTES = 64 << 10
_HEADER = struct.Struct("=QqHB")  # linux_dirent64: inode, position after it, record length, type; then the name
_libc = ctypes.CDLL(None, use_errno=True)
_getdents = getattr(_libc, "getdents64", None) or _libc.getdents  # musl has only the second, with the same records
_getdents.restype = ctypes.c_ssize_t


class DirectoryEntry(NamedTuple):
    """``position`` follows the entry; ``kind`` is one of the format bits of ``stat`` (such as ``S_IFDIR``), 0 where the
    file system does not say."""

    name: bytes
    position: int
    kind: int


def entries_of(fd: int, start: int = 0, buffer_bytes: int = _BUFFER_BYTES) -> Iterator[DirectoryEntry]:
    """Everything but ``.`` and ``..`` from the position ``start`` on. Raises OSError."""
    os.lseek(fd, start, os.SEEK_SET)
    buffer = ctypes.create_string_buffer(buffer_bytes)
    while True:
        filled = _getdents(fd, buffer, ctypes.c_size_t(buffer_bytes))
        if filled < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        if filled == 0:
            return
        yield from _records(buffer.raw[:filled])


def _records(data: bytes) -> Iterator[DirectoryEntry]:
    at = 0
    while at < len(data):
        _, position, length, kind = _HEADER.unpack_from(data, at)
        name = data[at + _HEADER.size : at + length].partition(b"\0")[0]
        if name not in (b".", b".."):
            yield DirectoryEntry(name, position, kind << 12)
        at += length
