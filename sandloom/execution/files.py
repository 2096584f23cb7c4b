"""The files of one sandbox, handled by the worker while hostile commands may rename and link them underneath.

Every path is walked from the sandbox's own directory by descriptors, without following a link, with the file
permissions of the sandbox's user. Methods raise FileFault and may be called from any thread.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass

from sandloom.execution.directories import Directories
from sandloom.execution.disk import Growth, Room
from sandloom.execution.file_entries import Entry, entry_of
from sandloom.execution.file_faults import FaultKind, FileFault, fault_of, translated
from sandloom.execution.file_writer import FileWriter
from sandloom.execution.listing import Page, list_page
from sandloom.execution.open_file import OpenFile
from sandloom.execution.openat import (
    PATH_FLAGS,
    SCAN_FLAGS,
    open_regular,
    rename_no_replace,
    set_directory_mode,
    sync_directory,
)
from sandloom.execution.path_locks import PathLocks, Use
from sandloom.execution.paths import SandboxPath, parse_path
from sandloom.execution.places import Places
from sandloom.execution.trash import Trash
from sandloom.execution.trees import SandboxTrees, TreeLimits

__all__ = ["Entry", "FileLimits", "OpenFile", "Page", "SandboxFiles"]


@dataclass(frozen=True, slots=True)
class FileLimits:
    """``delete_seconds``: how long a delete removes a tree that is out of sight already; the rest follows by itself."""

    max_file_bytes: int = 32 << 20
    max_raw_bytes: int = 4 << 30
    max_list_entries: int = 1000
    delete_seconds: float = 1


class SandboxFiles(Places):
    """File calls on one sandbox. ``locks`` must be the same object for every SandboxFiles of a sandbox."""

    def __init__(
        self,
        directories: Directories,
        uid: int,
        gid: int,
        trash: Trash,
        limits: FileLimits | None = None,
        locks: PathLocks | None = None,
        room: Room | None = None,
    ) -> None:
        super().__init__(directories, uid, gid, locks, room)
        self.limits = limits or FileLimits()
        self.trees = SandboxTrees(self, TreeLimits(max_archive_bytes=self.limits.max_raw_bytes))
        self._trash = trash

    def read(self, path: str, max_bytes: int | None = None) -> bytes:
        """The whole content; TOO_LARGE (with ``size_bytes``) above ``max_bytes`` or ``max_file_bytes``."""
        limit = self.limits.max_file_bytes if max_bytes is None else max_bytes
        with self.open_read(path) as file:
            return file.read_all(limit)

    def open_read(self, path: str) -> OpenFile:
        """The regular file, to be streamed; close it. Nobody can write the path through this service meanwhile."""
        place = parse_path(path)
        with ExitStack() as stack:
            stack.enter_context(self.locks.using(Use.READ, place))
            with translated(place.text), self.acting(), self.parent(place) as parent_fd:
                fd = open_regular(parent_fd, _leaf(place))
            return OpenFile(fd, place.text, stack.pop_all())

    def write(self, path: str, data: bytes, mode: int = 0o600) -> int:
        """Replaces or creates the file; see ``write_stream``."""
        return self.write_stream(path, (data,), mode, max_bytes=self.limits.max_file_bytes)

    def write_stream(self, path: str, chunks: Iterable[bytes], mode: int = 0o600, max_bytes: int | None = None) -> int:
        """Replaces or creates the file with all the chunks, durably, or changes nothing; returns its size in bytes.

        A link of that name is replaced, not followed; the parent must exist. Special bits of ``mode`` are dropped.
        TOO_LARGE above ``max_bytes`` or ``max_raw_bytes``. What ``chunks`` raises passes through.
        """
        place = self.changeable(path)
        limit = self.limits.max_raw_bytes if max_bytes is None else max_bytes
        with (
            self.locks.using(Use.WRITE, place),
            self.open_parent(place) as parent_fd,
            self.staging() as staging_fd,
            self.room.growing(place.text) as grow,
        ):
            grow(0, inodes=1)
            with translated(place.text):
                self._refuse_directory(parent_fd, place)
                writer = FileWriter(parent_fd, staging_fd, self.acting)
            with writer:
                size_bytes = _copy(chunks, writer, limit, place.text, grow)
                with translated(place.text):
                    writer.commit(place.name, mode)
        return size_bytes

    def replace(self, path: str, old: bytes, new: bytes, count: int | None = None) -> tuple[int, int]:
        """Replaces ``old`` in a file of at most ``max_file_bytes``, from the start and at most ``count`` times; returns
        how often, and the size in bytes.

        LOCKED when a command changes the file meanwhile. Without an ``old`` in it the file stays as it is.
        """
        place = self.changeable(path)
        with self.locks.using(Use.WRITE, place), self.open_parent(place) as parent_fd:
            with translated(place.text), self.acting():
                fd = open_regular(parent_fd, place.name)
            with OpenFile(fd, place.text, ExitStack()) as file:
                before = os.fstat(fd)
                data = file.read_all(self.limits.max_file_bytes)
            times = data.count(old) if count is None else min(data.count(old), count)
            size_bytes = len(data) + times * (len(new) - len(old))
            if times:
                self._demand_size(place, size_bytes)
                with self.staging() as staging_fd, self.room.growing(place.text) as grow, translated(place.text):
                    grow(size_bytes, inodes=1)
                    with FileWriter(parent_fd, staging_fd, self.acting) as writer:
                        writer.write(data.replace(old, new, times))
                        self._demand_unchanged(parent_fd, place, before)
                        writer.commit(place.name, stat.S_IMODE(before.st_mode))
        return times, size_bytes

    def listing(self, path: str, limit: int, offset: int = 0, cursor: str | None = None) -> Page:
        """One page of a directory; see ``list_page``. ``limit`` is brought into 1..``max_list_entries``."""
        place = parse_path(path)
        with self.reading(place) as parent_fd:
            fd = os.open(_leaf(place), SCAN_FLAGS, dir_fd=parent_fd)
            try:
                return list_page(fd, place, max(1, min(limit, self.limits.max_list_entries)), max(0, offset), cursor)
            finally:
                os.close(fd)

    def stat(self, path: str) -> Entry:
        """What lies at the path itself, link or not."""
        place = parse_path(path)
        with self.reading(place) as parent_fd:
            return entry_of(place, os.stat(_leaf(place), dir_fd=parent_fd, follow_symlinks=False))

    def mkdir(self, path: str, parents: bool = False) -> bool:
        """Makes the directory (mode 0755). With ``parents`` also those above, and one that is there is no error but
        False."""
        place = self.changeable(path)
        with (
            self.locks.using(Use.WRITE, place),
            self.room.growing(place.text) as grow,
            translated(place.text),
        ):
            grow(0, inodes=len(place.parts) if parents else 1)
            if not parents:
                with self.open_parent(place) as parent_fd:
                    self._make(parent_fd, place.name)
                    sync_directory(parent_fd)
                return True
            return self._make_chain(place)

    def delete(self, path: str, recursive: bool = False) -> None:
        """Removes a file, a link itself, or a directory: one with entries only with ``recursive``, at one stroke."""
        place = self.changeable(path)
        with self.locks.using(Use.TREE, place), translated(place.text), self.open_parent(place) as parent_fd:
            with self.acting():
                gone = _remove_plainly(parent_fd, place.name)
            if not gone:
                if not recursive:
                    raise FileFault(FaultKind.NOT_EMPTY, f"{place.text} is a directory with entries")
                self._remove_tree(parent_fd, place)
            sync_directory(parent_fd)
        self.room.freed()

    def move(self, source: str, destination: str, overwrite: bool = False) -> None:
        """Renames; with ``overwrite`` replaces a file by a file or an empty directory by a directory."""
        old, new = self.changeable(source), self.changeable(destination)
        if new.within(old) and new != old:
            raise FileFault(FaultKind.PATH_INVALID, f"{old.text} cannot be moved into itself")
        both = (old,) if old == new else (old, new)
        with self.locks.using(Use.TREE, *both), self.open_parent(old) as old_fd, self.open_parent(new) as new_fd:
            with translated(old.text):
                self._demand_presence(old_fd, old)
            with translated(new.text):
                with self.acting():
                    if overwrite:
                        os.rename(old.name, new.name, src_dir_fd=old_fd, dst_dir_fd=new_fd)
                    else:
                        rename_no_replace(old_fd, old.name, new_fd, new.name)
                sync_directory(new_fd)
                sync_directory(old_fd)

    def _refuse_directory(self, parent_fd: int, place: SandboxPath) -> None:
        """Before a long body is read for nothing; the rename refuses it in any case."""
        try:
            with self.acting():
                found = os.stat(place.name, dir_fd=parent_fd, follow_symlinks=False)
        except FileNotFoundError:
            return
        if stat.S_ISDIR(found.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))

    def _demand_size(self, place: SandboxPath, size_bytes: int) -> None:
        most = self.limits.max_file_bytes
        if size_bytes > most:
            raise FileFault(FaultKind.TOO_LARGE, f"{place.text} would have {size_bytes} bytes", max_bytes=most)

    def _demand_unchanged(self, parent_fd: int, place: SandboxPath, before: os.stat_result) -> None:
        with self.acting():
            now = os.stat(place.name, dir_fd=parent_fd, follow_symlinks=False)
        if _version(now) != _version(before):
            raise FileFault(FaultKind.LOCKED, f"{place.text} was changed by a command at the same time")

    def _demand_presence(self, parent_fd: int, place: SandboxPath) -> None:
        with self.acting():
            os.stat(place.name, dir_fd=parent_fd, follow_symlinks=False)

    def _make(self, parent_fd: int, name: bytes) -> None:
        with self.acting():
            os.mkdir(name, 0o755, dir_fd=parent_fd)
            set_directory_mode(parent_fd, name, 0o755)  # whatever the umask

    def _make_chain(self, place: SandboxPath) -> bool:
        with self.open_parent(SandboxPath(place.root, place.parts[:1])) as root_fd:
            current = os.dup(root_fd)
        created = False
        try:
            for depth, part in enumerate(place.parts, start=1):
                created = self._make_or_find(current, part)
                if created and depth == len(place.parts):
                    # Journals keep the order: those above are durable with the last.
                    sync_directory(current)
                with self.acting():
                    # ENOTDIR for anything but a directory, which is then the answer.
                    below = os.open(part, PATH_FLAGS, dir_fd=current)
                os.close(current)
                current = below
        finally:
            os.close(current)
        return created

    def _make_or_find(self, parent_fd: int, name: bytes) -> bool:
        try:
            self._make(parent_fd, name)
        except FileExistsError:
            return False
        return True

    def _remove_tree(self, parent_fd: int, place: SandboxPath) -> None:
        with self.acting():
            allowed = os.access(b".", os.W_OK | os.X_OK, dir_fd=parent_fd, effective_ids=True)
        if not allowed:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        self._trash.discard(parent_fd, place.name, self.limits.delete_seconds)


def _version(found: os.stat_result) -> tuple[int, int, int, int]:
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_mode


def _leaf(place: SandboxPath) -> bytes:
    return place.name if place.parts else b"."


def _remove_plainly(parent_fd: int, name: bytes) -> bool:
    """Removes anything but a directory with entries, for which it answers False."""
    try:
        if stat.S_ISDIR(os.stat(name, dir_fd=parent_fd, follow_symlinks=False).st_mode):
            os.rmdir(name, dir_fd=parent_fd)
        else:
            os.unlink(name, dir_fd=parent_fd)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            return False
        raise
    return True


def _copy(chunks: Iterable[bytes], writer: FileWriter, max_bytes: int, path: str, grow: Growth) -> int:
    size_bytes = 0
    for chunk in chunks:
        size_bytes += len(chunk)
        if size_bytes > max_bytes:
            raise FileFault(FaultKind.TOO_LARGE, f"{path} may have at most {max_bytes} bytes", max_bytes=max_bytes)
        grow(len(chunk))
        try:
            writer.write(chunk)
        except OSError as error:
            raise fault_of(error, path) from error
    return size_bytes
