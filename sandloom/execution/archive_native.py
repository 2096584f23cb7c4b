"""The library of ``native/archive.c``: a tree becomes a tar archive without Python objects for each of its files."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Iterator
from enum import IntEnum
from functools import cache
from types import TracebackType
from typing import Self

from sandloom.execution.native import library
from sandloom.execution.spawner.native import open_library
from sandloom.execution.tar_format import Member, MemberType, encode
from sandloom.execution.tree_walk import TreeBounds

PIECE_BYTES = 256 * 1024
_TYPES = {ord(b"0"): MemberType.FILE, ord(b"2"): MemberType.SYMLINK, ord(b"5"): MemberType.DIRECTORY}
_LONGEST_SECONDS = 1 << 32


class _Status(IntEnum):
    """``enum status``."""

    MORE = 0
    END = 1
    HEADER = 2
    TOO_MANY = 3
    TOO_DEEP = 4
    TOO_LATE = 5
    TOO_LARGE = 6
    FAILED = 7


class _Entry(ctypes.Structure):
    """``struct entry``."""

    _fields_ = (
        *((name, ctypes.c_uint64) for name in ("skipped", "size_bytes")),
        ("modified_seconds", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in ("path", "target")),
        *((name, ctypes.c_uint64) for name in ("path_length", "target_length")),
        *((name, ctypes.c_int32) for name in ("type", "mode", "status", "number")),
    )


class NativeTree:
    """What lies below a directory as an archive; a context manager. Calls are made by one thread at a time.

    ``skipped`` and ``cut`` as in ``PythonTree``.
    """

    def __init__(self, functions: ctypes.CDLL, fd: int, bounds: TreeBounds, max_bytes: int) -> None:
        """Raises OSError."""
        self._functions = functions
        self._bounds = bounds
        self._max_bytes = max_bytes
        until_ns = time.monotonic_ns() + int(min(bounds.seconds, _LONGEST_SECONDS) * 1e9)
        self._handle = functions.sandloom_archive_open(fd, bounds.max_entries, bounds.max_depth, until_ns, max_bytes)
        if not self._handle:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        self._entry: _Entry = functions.sandloom_archive_entry(self._handle).contents
        self._buffer = (ctypes.c_ubyte * PIECE_BYTES)()
        self.skipped = 0
        self.cut: str | None = None

    def close(self) -> None:
        if self._handle:
            handle, self._handle = self._handle, None
            self._functions.sandloom_archive_close(handle)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def pieces(self) -> Iterator[bytes]:
        """Up to the end, or to where it was cut. Raises OSError."""
        view = memoryview(self._buffer)
        while True:
            used = self._functions.sandloom_archive_read(self._handle, self._buffer, PIECE_BYTES)
            status = _Status(self._entry.status)
            if status is _Status.FAILED:
                raise OSError(self._entry.number, os.strerror(self._entry.number))
            if used:
                yield bytes(view[:used])
            if status is _Status.HEADER:
                yield encode(self._member())
            elif status is not _Status.MORE:
                break
        self.skipped = self._entry.skipped
        self.cut = self._cut(status)

    def _member(self) -> Member:
        entry = self._entry
        return Member(
            ctypes.string_at(entry.path, entry.path_length),
            _TYPES[entry.type],
            entry.size_bytes,
            entry.mode,
            entry.modified_seconds,
            ctypes.string_at(entry.target, entry.target_length),
        )

    def _cut(self, status: _Status) -> str | None:
        return {
            _Status.TOO_MANY: f"more than {self._bounds.max_entries} entries",
            _Status.TOO_DEEP: f"directories more than {self._bounds.max_depth} levels deep",
            _Status.TOO_LATE: f"more than {self._bounds.seconds:g} seconds of work",
            _Status.TOO_LARGE: f"more than {self._max_bytes} bytes of content",
        }.get(status)


@cache
def load() -> ctypes.CDLL | None:
    """The library, None where it is not built."""
    path = library.find(library.ARCHIVE_SOURCE)
    if path is None:
        return None
    try:
        functions = open_library(str(path))
        size, number, handle = ctypes.c_size_t, ctypes.c_uint64, ctypes.c_void_p
        functions.sandloom_archive_open.argtypes = (ctypes.c_int, number, number, ctypes.c_int64, number)
        functions.sandloom_archive_open.restype = handle
        functions.sandloom_archive_read.argtypes = (handle, ctypes.c_void_p, size)
        functions.sandloom_archive_read.restype = size
        functions.sandloom_archive_entry.argtypes = (handle,)
        functions.sandloom_archive_entry.restype = ctypes.POINTER(_Entry)
        functions.sandloom_archive_close.argtypes = (handle,)
        functions.sandloom_archive_close.restype = None
    except (OSError, AttributeError):
        return None
    return functions
