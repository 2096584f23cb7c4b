"""A tree as the entries of a tar archive, in Python: the twin of ``native/archive.c``."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from types import TracebackType
from typing import Self

from sandloom.execution.openat import open_regular
from sandloom.execution.tar_format import Member, MemberType, encode, padding
from sandloom.execution.tree_walk import NOT_OF_THE_ENTRY, Found, TreeBounds, TreeWalk

PIECE_BYTES = 256 * 1024
_ZEROS = bytes(PIECE_BYTES)


class PythonTree:
    """The content of the directory ``fd``; a context manager.

    ``skipped`` counts what is no file, directory or link, or could not be read; ``cut`` names the bound that ended it.
    """

    def __init__(self, fd: int, bounds: TreeBounds, max_bytes: int) -> None:
        self._walk = TreeWalk(fd, bounds)
        self._left_bytes = self._max_bytes = max_bytes
        self._left_out = 0
        self._cut: str | None = None

    @property
    def skipped(self) -> int:
        return self._left_out + self._walk.skipped

    @property
    def cut(self) -> str | None:
        return self._cut or self._walk.cut

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def pieces(self) -> Iterator[bytes]:
        """Up to the end, or to where it was cut. Raises OSError."""
        for found in self._walk:
            yield from self._entry(found)
            if self.cut is not None:
                return

    def file(self, fd: int, name: bytes) -> Iterator[bytes]:
        """One regular file as an entry. A file that shrinks meanwhile is filled up with zeros."""
        found = os.fstat(fd)
        size_bytes = found.st_size
        self._left_bytes -= size_bytes
        if self._left_bytes < 0:
            self._cut = f"more than {self._max_bytes} bytes of content"
            return
        header = encode(_member(name, MemberType.FILE, found))
        if size_bytes <= PIECE_BYTES:
            content = os.pread(fd, size_bytes, 0)
            yield header + content + bytes(size_bytes - len(content) + padding(size_bytes))
            return
        yield header
        at = 0
        while at < size_bytes:
            if self._walk.late():
                return
            piece = os.pread(fd, min(PIECE_BYTES, size_bytes - at), at) or _ZEROS[: size_bytes - at]
            at += len(piece)
            yield piece
        yield bytes(padding(size_bytes))

    def _entry(self, found: Found) -> Iterator[bytes]:
        name = b"/".join(found.parts)
        fd, header = -1, b""
        try:
            if stat.S_ISREG(found.kind):
                fd = open_regular(found.parent_fd, found.name, looked=True)
            elif stat.S_ISDIR(found.kind):
                header = encode(_member(name + b"/", MemberType.DIRECTORY, found.stat()))
            elif stat.S_ISLNK(found.kind):
                target = os.readlink(found.name, dir_fd=found.parent_fd)
                header = encode(_member(name, MemberType.SYMLINK, found.stat(), target))
            else:
                self._left_out += 1
        except OSError as error:
            if error.errno in NOT_OF_THE_ENTRY:
                raise
            found.enter = False
            self._left_out += error.errno != errno.ENOENT
            return
        if fd < 0:
            yield header
            return
        try:
            yield from self.file(fd, name)
        finally:
            os.close(fd)


def _member(name: bytes, kind: MemberType, found: os.stat_result, target: bytes = b"") -> Member:
    size_bytes = found.st_size if kind is MemberType.FILE else 0
    return Member(name, kind, size_bytes, stat.S_IMODE(found.st_mode) & 0o777, int(found.st_mtime), target)
