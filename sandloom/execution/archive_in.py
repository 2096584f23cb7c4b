"""Extracting a tar archive below a directory: links are stored as text, and nothing goes through one.

Everything happens with the file permissions of the sandbox's user, whom all that is made belongs to. Each file appears
whole; an archive that is refused in the middle leaves what came before.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from sandloom.execution.file_faults import FaultKind, FileFault, translated
from sandloom.execution.file_writer import FileWriter, staging_name
from sandloom.execution.openat import DIRECTORY_FLAGS, PATH_FLAGS, open_directory, set_directory_mode
from sandloom.execution.paths import MAX_NAME_BYTES
from sandloom.execution.tar_format import Member, MemberType, damaged, shown
from sandloom.execution.tree_walk import TreeBounds

_MAX_TARGET_BYTES = 4095
_libc = ctypes.CDLL(None, use_errno=True)

Parts = tuple[bytes, ...]


@dataclass(slots=True)
class Extracted:
    """Counts. ``skipped``: FIFOs, devices and unknown things in the archive."""

    files: int = 0
    directories: int = 0
    links: int = 0
    size_bytes: int = 0
    skipped: int = 0


class Extraction:
    """A sink of ``TarReader``; close it. Its methods are called as the sandbox's user, ``settle`` as the service."""

    def __init__(self, top_fd: int, staging_fd: int, bounds: TreeBounds, max_bytes: int) -> None:
        self.counts = Extracted()
        self._top_fd = top_fd
        self._staging_fd = staging_fd
        self._bounds = bounds
        self._max_bytes = max_bytes
        self._until = time.monotonic() + bounds.seconds
        self.entries = 0
        self._parent: tuple[Parts, int] | None = None
        self._member: tuple[Member, bytes] | None = None
        self._writer: FileWriter | None = None

    def begin(self, member: Member) -> None:
        parts = _parts(member.name, self._bounds.max_depth)
        self._count()
        if member.type is MemberType.OTHER:
            self.counts.skipped += 1
            return
        with _naming(member.name):
            if member.type is MemberType.DIRECTORY:
                self._directory(parts, member.mode)
            elif not parts:
                raise damaged("the archive has a file without a name")
            elif member.type is MemberType.FILE:
                self._begin_file(parts, member)
            elif member.type is MemberType.SYMLINK:
                self._symlink(parts, member.target)
            else:
                self._hard_link(parts, member.target)

    def data(self, piece: memoryview) -> None:
        if self._writer is not None and self._member is not None:
            with _naming(self._member[0].name):
                self._writer.write(piece)
            self._demand_time()

    def end(self) -> None:
        if self._writer is None or self._member is None:
            return
        member, name = self._member
        with _naming(member.name):
            self._writer.set_modified(member.modified_seconds)
            self._writer.commit(name, member.mode, durable=False)
        self._drop_writer()
        self.counts.files += 1
        self.counts.size_bytes += member.size_bytes

    def settle(self) -> None:
        """Makes everything durable."""
        fd = os.open(".", os.O_RDONLY | DIRECTORY_FLAGS, dir_fd=self._top_fd)
        try:
            if _libc.syncfs(fd) != 0:
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number))
        finally:
            os.close(fd)

    def close(self) -> None:
        self._drop_writer()
        self._keep_parent(None)

    def _count(self) -> None:
        self.entries += 1
        if self.entries > self._bounds.max_entries:
            raise FileFault(FaultKind.TOO_LARGE, f"the archive has more than {self._bounds.max_entries} entries")
        self._demand_time()

    def _demand_time(self) -> None:
        if time.monotonic() > self._until:
            raise FileFault(FaultKind.TOO_LARGE, f"the archive takes more than {self._bounds.seconds:g} seconds")

    def _begin_file(self, parts: Parts, member: Member) -> None:
        if self.counts.size_bytes + member.size_bytes > self._max_bytes:
            raise FileFault(
                FaultKind.TOO_LARGE, f"the archive has more than {self._max_bytes} bytes", max_bytes=self._max_bytes
            )
        self._writer = FileWriter(self._open_parent(parts[:-1]), self._staging_fd, nullcontext)
        self._member = (member, parts[-1])

    def _drop_writer(self) -> None:
        writer, self._writer, self._member = self._writer, None, None
        if writer is not None:
            writer.close()

    def _directory(self, parts: Parts, mode: int) -> None:
        if not parts:
            return
        parent_fd = self._open_parent(parts[:-1])
        with contextlib.suppress(FileExistsError):
            os.mkdir(parts[-1], 0o755, dir_fd=parent_fd)
        # ENOTDIR for anything else of that name. Its owner can always go on in it.
        set_directory_mode(parent_fd, parts[-1], mode | 0o700)
        self.counts.directories += 1

    def _symlink(self, parts: Parts, target: bytes) -> None:
        if not target or len(target) > _MAX_TARGET_BYTES:
            raise damaged(f"the link {shown(parts[-1])} has an empty or endless target")
        parent_fd = self._open_parent(parts[:-1])
        try:
            os.symlink(target, parts[-1], dir_fd=parent_fd)
        except FileExistsError:
            staged = staging_name().encode()
            os.symlink(target, staged, dir_fd=parent_fd)
            _replace(parent_fd, staged, parts[-1])
        self.counts.links += 1

    def _hard_link(self, parts: Parts, target: bytes) -> None:
        """To a file of the same tree. As the sandbox's user no other can be reached in any case."""
        source = _parts(target, self._bounds.max_depth)
        if not source:
            raise damaged(f"the hard link {shown(parts[-1])} has no target")
        parent_fd = self._open_parent(parts[:-1])
        source_fd = open_directory(self._top_fd, source[:-1])
        try:
            _link(source_fd, source[-1], parent_fd, parts[-1])
        except FileExistsError:
            staged = staging_name().encode()
            _link(source_fd, source[-1], parent_fd, staged)
            _replace(parent_fd, staged, parts[-1])
        finally:
            os.close(source_fd)
        self.counts.links += 1

    def _open_parent(self, parts: Parts) -> int:
        """Of the last parent only, since archives keep a directory's entries together; made when it is missing."""
        if self._parent is None or self._parent[0] != parts:
            self._keep_parent(None)
            self._keep_parent((parts, self._make(parts)))
        assert self._parent is not None
        return self._parent[1]

    def _keep_parent(self, parent: tuple[Parts, int] | None) -> None:
        if self._parent is not None:
            os.close(self._parent[1])
        self._parent = parent

    def _make(self, parts: Parts) -> int:
        try:
            return open_directory(self._top_fd, parts)
        except FileNotFoundError:
            if not parts:
                raise
        above_fd = self._make(parts[:-1])
        try:
            with contextlib.suppress(FileExistsError):
                os.mkdir(parts[-1], 0o755, dir_fd=above_fd)
                set_directory_mode(above_fd, parts[-1], 0o755)  # whatever the umask
                self._count()
            return os.open(parts[-1], PATH_FLAGS, dir_fd=above_fd)
        finally:
            os.close(above_fd)


def _parts(name: bytes, max_depth: int) -> Parts:
    """Where an entry lies below the top. Raises FileFault(ARCHIVE_INVALID) for one that leads elsewhere."""
    if name.startswith(b"/"):
        raise damaged(f"the archive has an absolute path: {shown(name)}")
    parts = tuple(part for part in name.split(b"/") if part not in (b"", b"."))
    if b".." in parts:
        raise damaged(f"the archive has a path that leads upwards: {shown(name)}")
    if any(len(part) > MAX_NAME_BYTES for part in parts):
        raise damaged(f"the archive has a name of more than {MAX_NAME_BYTES} bytes: {shown(name)}")
    if len(parts) > max_depth:
        raise FileFault(FaultKind.TOO_LARGE, f"the archive is more than {max_depth} levels deep")
    return parts


def _naming(name: bytes) -> AbstractContextManager[None]:
    return translated(f"the entry {shown(name)}")


def _link(source_fd: int, source: bytes, parent_fd: int, name: bytes) -> None:
    os.link(source, name, src_dir_fd=source_fd, dst_dir_fd=parent_fd, follow_symlinks=False)


def _replace(parent_fd: int, staged: bytes, name: bytes) -> None:
    try:
        os.rename(staged, name, src_dir_fd=parent_fd, dst_dir_fd=parent_fd)
    finally:
        # It is still there after a failure, and after a rename between two links of one file, which does nothing.
        with contextlib.suppress(OSError):
            os.unlink(staged, dir_fd=parent_fd)
