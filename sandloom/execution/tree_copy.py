"""A tree copied by descriptors: no link is followed, and nothing is read that does not belong to the tree's user.

Files share their blocks with the source where the file system can (``FICLONE``); elsewhere their data is copied and
their holes stay holes. Sockets, FIFOs and devices are left out; each hard link becomes a file of its own.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass

from sandloom.execution.directory_entries import DirectoryEntry, entries_of
from sandloom.execution.file_faults import FaultKind, FileFault
from sandloom.execution.openat import SAFE_FLAGS, SCAN_FLAGS, open_regular
from sandloom.execution.tree_walk import TreeBounds

_FICLONE = 0x40049409
_CANNOT_CLONE = frozenset({errno.EOPNOTSUPP, errno.EXDEV, errno.EINVAL, errno.ENOTTY, errno.ENOSYS, errno.EPERM})
_CANNOT_COPY_RANGE = frozenset({errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP})
_PIECE_BYTES = 8 << 20
_BUFFER_BYTES = 16 << 10  # one for each level
_CREATE = os.O_RDWR | os.O_CREAT | os.O_EXCL | SAFE_FLAGS


@dataclass(slots=True)
class _Level:
    """``found``: what the directory's own mode and times are set from once it is filled; None for the top."""

    source_fd: int
    target_fd: int
    entries: Iterator[DirectoryEntry]
    found: os.stat_result | None

    def close(self) -> None:
        os.close(self.source_fd)
        os.close(self.target_fd)


class TreeCopy:
    """Counts what ``copy`` did, over several calls. Raises FileFault for what meets a bound or cannot be copied whole;
    OSError.

    ``owner``: whose tree it is; what belongs to others is left out. ``max_bytes``: of data that is really copied.
    """

    def __init__(self, owner: int, bounds: TreeBounds, max_bytes: int) -> None:
        self.entries = self.cloned = self.skipped = 0
        self.copied_bytes = 0
        self._owner = owner
        self._bounds = bounds
        self._max_bytes = max_bytes
        self._until = time.monotonic() + bounds.seconds
        self._clones = True

    def copy(self, source_fd: int, target_fd: int) -> None:
        """All that lies below one directory, into another that is empty; both stay open. Nobody else may use the
        target."""
        levels = [_level(os.dup(source_fd), os.dup(target_fd), None)]
        device = os.fstat(source_fd).st_dev
        try:
            while levels:
                entry = next(levels[-1].entries, None)
                if entry is None:
                    self._leave(levels.pop())
                    continue
                self._count()
                found = os.stat(entry.name, dir_fd=levels[-1].source_fd, follow_symlinks=False)
                if found.st_dev != device or found.st_uid != self._owner:
                    self.skipped += 1
                else:
                    self._entry(levels, entry.name, found)
        finally:
            for level in levels:
                level.close()

    def _entry(self, levels: list[_Level], name: bytes, found: os.stat_result) -> None:
        source_fd, target_fd = levels[-1].source_fd, levels[-1].target_fd
        if stat.S_ISDIR(found.st_mode):
            if len(levels) > self._bounds.max_depth:
                raise _too_large(f"is more than {self._bounds.max_depth} levels deep")
            levels.append(self._enter(source_fd, target_fd, name))
        elif stat.S_ISREG(found.st_mode):
            self._file(source_fd, target_fd, name)
        elif stat.S_ISLNK(found.st_mode):
            os.symlink(os.readlink(name, dir_fd=source_fd), name, dir_fd=target_fd)
            os.utime(name, ns=(found.st_atime_ns, found.st_mtime_ns), dir_fd=target_fd, follow_symlinks=False)
        else:
            self.skipped += 1

    def _enter(self, source_fd: int, target_fd: int, name: bytes) -> _Level:
        inner_fd = os.open(name, SCAN_FLAGS, dir_fd=source_fd)
        try:
            found = self._demand_own(inner_fd)
            os.mkdir(name, 0o700, dir_fd=target_fd)
            made_fd = os.open(name, SCAN_FLAGS, dir_fd=target_fd)
        except BaseException:
            os.close(inner_fd)
            raise
        return _level(inner_fd, made_fd, found)

    def _leave(self, level: _Level) -> None:
        try:
            if level.found is not None:
                _finish(level.target_fd, level.found)
        finally:
            level.close()

    def _file(self, source_fd: int, target_fd: int, name: bytes) -> None:
        file_fd = open_regular(source_fd, name, looked=True)
        try:
            found = self._demand_own(file_fd)
            made_fd = os.open(name, _CREATE, 0o600, dir_fd=target_fd)
            try:
                if found.st_size and not self._clone(file_fd, made_fd):
                    self._data(file_fd, made_fd, found.st_size)
                _finish(made_fd, found)
            finally:
                os.close(made_fd)
        finally:
            os.close(file_fd)

    def _clone(self, file_fd: int, made_fd: int) -> bool:
        if not self._clones:
            return False
        try:
            fcntl.ioctl(made_fd, _FICLONE, file_fd)
        except OSError as error:
            if error.errno not in _CANNOT_CLONE:
                raise
            self._clones = False
            return False
        self.cloned += 1
        return True

    def _data(self, file_fd: int, made_fd: int, size_bytes: int) -> None:
        os.ftruncate(made_fd, size_bytes)
        at = 0
        while at < size_bytes:
            try:
                at = os.lseek(file_fd, at, os.SEEK_DATA)
            except OSError as error:
                if error.errno == errno.ENXIO:
                    return  # nothing but a hole is left
                raise
            end = min(size_bytes, os.lseek(file_fd, at, os.SEEK_HOLE))
            while at < end:
                at += self._piece(file_fd, made_fd, at, min(_PIECE_BYTES, end - at))

    def _piece(self, file_fd: int, made_fd: int, at: int, size_bytes: int) -> int:
        self._demand_time()
        self.copied_bytes += size_bytes
        if self.copied_bytes > self._max_bytes:
            raise FileFault(FaultKind.DISK_FULL, f"there is no room for a copy of more than {self._max_bytes} bytes")
        try:
            done = os.copy_file_range(file_fd, made_fd, size_bytes, at, at)
        except OSError as error:
            if error.errno not in _CANNOT_COPY_RANGE:
                raise
            done = os.pwrite(made_fd, os.pread(file_fd, min(size_bytes, 1 << 20), at), at)
        if done == 0:
            raise FileFault(FaultKind.LOCKED, "a file became shorter while it was copied")
        self.copied_bytes -= size_bytes - done
        return done

    def _demand_own(self, fd: int) -> os.stat_result:
        """What was opened, in case the name led elsewhere by then."""
        found = os.fstat(fd)
        if found.st_uid != self._owner:
            raise FileFault(FaultKind.LOCKED, "the tree changed while it was copied")
        return found

    def _count(self) -> None:
        self.entries += 1
        if self.entries > self._bounds.max_entries:
            raise _too_large(f"has more than {self._bounds.max_entries} entries")
        if self.entries % 64 == 0:
            self._demand_time()

    def _demand_time(self) -> None:
        if time.monotonic() > self._until:
            raise _too_large(f"takes more than {self._bounds.seconds:g} seconds")


def _level(source_fd: int, target_fd: int, found: os.stat_result | None) -> _Level:
    return _Level(source_fd, target_fd, entries_of(source_fd, buffer_bytes=_BUFFER_BYTES), found)


def _finish(fd: int, found: os.stat_result) -> None:
    os.fchmod(fd, stat.S_IMODE(found.st_mode) & 0o777)
    os.utime(fd, ns=(found.st_atime_ns, found.st_mtime_ns))


def _too_large(what: str) -> FileFault:
    return FileFault(FaultKind.TOO_LARGE, f"the sandbox {what}")
