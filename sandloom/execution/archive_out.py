"""A tree as a tar archive, made while it is read, in constant memory."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, ExitStack
from types import TracebackType
from typing import Self

from sandloom.execution.file_faults import FaultKind, FileFault, translated
from sandloom.execution.openat import open_regular
from sandloom.execution.tar_format import BLOCK_BYTES, END, Member, MemberType, encode, padding
from sandloom.execution.tree_walk import Found, TreeBounds, TreeWalk

_PIECE_BYTES = 256 * 1024
_ZEROS = bytes(_PIECE_BYTES)
_Pieces = Generator[bytes, None, None]


class ArchiveOut:
    """The bytes of the archive; close it. ``skipped`` counts what is no file, directory or link, or could not be read.

    An archive that left something out says so in a block of text behind its end, which tar readers ignore. A file that
    shrinks while it is read is filled up with zeros, as tar does it.
    """

    def __init__(
        self,
        fd: int,
        path: str,
        name: bytes | None,
        bounds: TreeBounds,
        max_bytes: int,
        acting: Callable[[], AbstractContextManager[None]],
        lock: ExitStack,
    ) -> None:
        """``fd``: the directory whose content is archived, or with ``name`` the one regular file."""
        self._fd = fd
        self._path = path
        self._acting = acting
        self._lock = lock
        self._left_bytes = self._max_bytes = max_bytes
        self._walk = TreeWalk(fd, bounds) if name is None else None
        self._inner = self._tree(self._walk) if self._walk is not None else self._single(fd, name or b"")
        self.skipped = 0

    def chunks(self) -> Iterator[bytes]:
        """Raises FileFault when a bound is met: what came until then is no archive."""
        buffer = bytearray()
        while True:
            with translated(self._path), self._acting():
                for piece in self._inner:
                    buffer += piece
                    if len(buffer) >= _PIECE_BYTES:
                        break
            if not buffer:
                return
            yield bytes(buffer)
            buffer.clear()

    def close(self) -> None:
        """Also lets go of the path's lock."""
        self._inner.close()
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            with self._lock:
                os.close(fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _tree(self, walk: TreeWalk) -> _Pieces:
        for found in walk:
            yield from self._entry(found)
        if walk.cut is not None:
            raise FileFault(FaultKind.TOO_LARGE, f"{self._path} cannot be archived whole: it has {walk.cut}")
        self.skipped += walk.skipped
        yield END
        if self.skipped:
            yield (b"sandloom: skipped=%d\n" % self.skipped).ljust(BLOCK_BYTES, b"\0")

    def _single(self, fd: int, name: bytes) -> _Pieces:
        yield from self._file(fd, name)
        yield END

    def _entry(self, found: Found) -> _Pieces:
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
                self.skipped += 1
        except FileNotFoundError:
            return
        except OSError:  # closed to the sandbox's own user, leased, or of another kind by now
            self.skipped += 1
            return
        if fd < 0:
            yield header
            return
        try:
            yield from self._file(fd, name)
        finally:
            os.close(fd)

    def _file(self, fd: int, name: bytes) -> _Pieces:
        found = os.fstat(fd)
        size_bytes = found.st_size
        self._left_bytes -= size_bytes
        if self._left_bytes < 0:
            raise FileFault(FaultKind.TOO_LARGE, f"{self._path} has more than {self._max_bytes} bytes of content")
        header = encode(_member(name, MemberType.FILE, found))
        if size_bytes <= _PIECE_BYTES:
            content = os.pread(fd, size_bytes, 0)
            yield header + content + bytes(size_bytes - len(content) + padding(size_bytes))
            return
        yield header
        at = 0
        while at < size_bytes:
            piece = os.pread(fd, min(_PIECE_BYTES, size_bytes - at), at) or _ZEROS[: size_bytes - at]
            at += len(piece)
            self._demand_time()
            yield piece
        yield bytes(padding(size_bytes))

    def _demand_time(self) -> None:
        if self._walk is not None and self._walk.late():
            raise FileFault(FaultKind.TOO_LARGE, f"{self._path} cannot be archived whole: it took {self._walk.cut}")


def _member(name: bytes, kind: MemberType, found: os.stat_result, target: bytes = b"") -> Member:
    size_bytes = found.st_size if kind is MemberType.FILE else 0
    return Member(name, kind, size_bytes, stat.S_IMODE(found.st_mode) & 0o777, int(found.st_mtime), target)
