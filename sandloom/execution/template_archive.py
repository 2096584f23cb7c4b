"""The archive of a template: the same tree gives the same bytes, whoever owns it, whenever and wherever it is made.

Entries are sorted, times and owners are zero, and a mode says only whether something can be executed. Nothing else may
write to the tree meanwhile. FIFOs, sockets and devices are left out.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator

from sandloom.execution.file_faults import FaultKind, FileFault
from sandloom.execution.openat import SCAN_FLAGS, open_regular
from sandloom.execution.tar_format import END, Member, MemberType, encode, padding, shown
from sandloom.execution.tree_walk import TreeBounds

_PIECE_BYTES = 256 * 1024


class TemplateArchive:
    """Iterate once over ``chunks``. Raises FileFault for what cannot be read whole, or meets a bound; OSError."""

    def __init__(self, fd: int, bounds: TreeBounds, max_bytes: int) -> None:
        """``max_bytes``: of content."""
        self._fd = fd
        self._bounds = bounds
        self._left_bytes = self._max_bytes = max_bytes
        self._until = time.monotonic() + bounds.seconds
        self.entries = 0
        self.skipped = 0

    def chunks(self) -> Iterator[bytes]:
        yield from self._directory(self._fd, b"", 1)
        yield END

    def _directory(self, fd: int, prefix: bytes, depth: int) -> Iterator[bytes]:
        if depth > self._bounds.max_depth + 1:
            raise _too_large(f"is more than {self._bounds.max_depth} levels deep")
        for name in sorted(os.fsencode(name) for name in os.listdir(fd)):
            self._count()
            yield from self._entry(fd, name, prefix + name, depth)

    def _entry(self, fd: int, name: bytes, path: bytes, depth: int) -> Iterator[bytes]:
        found = os.stat(name, dir_fd=fd, follow_symlinks=False)
        if stat.S_ISDIR(found.st_mode):
            yield encode(Member(path + b"/", MemberType.DIRECTORY, mode=0o755))
            below = os.open(name, SCAN_FLAGS, dir_fd=fd)
            try:
                yield from self._directory(below, path + b"/", depth + 1)
            finally:
                os.close(below)
        elif stat.S_ISLNK(found.st_mode):
            yield encode(Member(path, MemberType.SYMLINK, mode=0o777, target=os.readlink(name, dir_fd=fd)))
        elif stat.S_ISREG(found.st_mode):
            yield from self._file(fd, name, path)
        else:
            self.skipped += 1

    def _file(self, fd: int, name: bytes, path: bytes) -> Iterator[bytes]:
        file_fd = open_regular(fd, name, looked=True)
        try:
            found = os.fstat(file_fd)
            self._left_bytes -= found.st_size
            if self._left_bytes < 0:
                raise _too_large(f"has more than {self._max_bytes} bytes")
            mode = 0o755 if found.st_mode & 0o111 else 0o644
            yield encode(Member(path, MemberType.FILE, found.st_size, mode))
            at = 0
            while at < found.st_size:
                piece = os.pread(file_fd, min(_PIECE_BYTES, found.st_size - at), at)
                if not piece:
                    raise FileFault(FaultKind.LOCKED, f"{shown(path)} changed while the template was made")
                at += len(piece)
                self._demand_time()
                yield piece
            yield bytes(padding(found.st_size))
        finally:
            os.close(file_fd)

    def _count(self) -> None:
        self.entries += 1
        if self.entries > self._bounds.max_entries:
            raise _too_large(f"has more than {self._bounds.max_entries} entries")
        if self.entries % 64 == 0:
            self._demand_time()

    def _demand_time(self) -> None:
        if time.monotonic() > self._until:
            raise _too_large(f"takes more than {self._bounds.seconds:g} seconds")


def _too_large(what: str) -> FileFault:
    return FileFault(FaultKind.TOO_LARGE, f"the template {what}")
