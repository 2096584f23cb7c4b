"""Putting a new file in place whole: the old content or the new, never a part, whenever the process or machine dies."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Self

from sandloom.execution.openat import DIRECTORY_FLAGS, SAFE_FLAGS, sync_directory

# What kernels and file systems answer that have no nameless files.
_UNNAMEABLE = frozenset({errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL})
_NAMELESS = os.O_TMPFILE
#: Tells names that this process is using from those that an earlier one left.
life = secrets.token_hex(4)


class FileWriter:
    """A file without a name until ``commit``; closing it without that leaves nothing behind.

    ``identity`` makes a context in which system calls that check permissions are made. A file that replaces another,
    and any file on a file system without nameless ones, first gets a name in ``staging_fd``, which a kill may leave
    there (``sweep``). Where that is another file system, the name is a dot name in the parent itself.
    """

    def __init__(self, parent_fd: int, staging_fd: int, identity: Callable[[], AbstractContextManager[None]]) -> None:
        self._parent_fd = parent_fd
        self._staging_fd = staging_fd if os.fstat(staging_fd).st_dev == os.fstat(parent_fd).st_dev else parent_fd
        self._identity = identity
        self._staged: str | None = None
        with identity():
            self._fd = self._open()

    def write(self, data: bytes | memoryview) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._fd, view) :]

    def set_modified(self, seconds: int) -> None:
        os.utime(self._fd, (seconds, seconds))

    def commit(self, name: bytes, mode: int, *, durable: bool = True) -> None:
        """Gives the file its name, replacing a file or link of that name; EISDIR for a directory.

        Not ``durable``: the caller makes it so, together with others.
        """
        os.fchmod(self._fd, mode & 0o777)
        if durable:
            os.fsync(self._fd)
        with self._identity():
            if self._staged is None and self._link(name):
                pass
            else:
                self._replace(name)
        if durable:
            sync_directory(self._parent_fd)

    def close(self) -> None:
        os.close(self._fd)
        if self._staged is not None:
            with contextlib.suppress(OSError), self._identity():
                os.unlink(self._staged, dir_fd=self._staging_fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _open(self) -> int:
        try:
            return os.open(".", _NAMELESS | os.O_WRONLY | os.O_CLOEXEC, 0o600, dir_fd=self._parent_fd)
        except OSError as error:
            if error.errno not in _UNNAMEABLE:
                raise
        staged = staging_name()
        fd = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL | SAFE_FLAGS, 0o600, dir_fd=self._staging_fd)
        self._staged = staged
        return fd

    def _link(self, name: bytes) -> bool:
        """Names the file unless the name is taken, then ``_staged`` has a name of its own."""
        with contextlib.suppress(FileExistsError):
            self._link_as(name, self._parent_fd)
            return True
        staged = staging_name()
        try:
            self._link_as(staged, self._staging_fd)
        except OSError as error:
            # Quotas of projects bound links like file systems do.
            if error.errno != errno.EXDEV:
                raise
            self._staging_fd = self._parent_fd
            self._link_as(staged, self._staging_fd)
        self._staged = staged
        return False

    def _link_as(self, name: str | bytes, directory_fd: int) -> None:
        source = f"/proc/self/fd/{self._fd}"
        os.link(source, name, dst_dir_fd=directory_fd, follow_symlinks=True)

    def _replace(self, name: bytes) -> None:
        if self._staged is None:
            return
        os.rename(self._staged, name, src_dir_fd=self._staging_fd, dst_dir_fd=self._parent_fd)
        self._staged = None


def open_staging(path: str, uid: int, gid: int) -> int:
    """A descriptor of the staging directory, made when it is not there; close it."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)
    fd = os.open(path, os.O_RDONLY | DIRECTORY_FLAGS)
    found = os.fstat(fd)
    if os.geteuid() == 0 and (found.st_uid, found.st_gid) != (uid, gid):
        os.fchown(fd, uid, gid)
    return fd


def sweep(path: str) -> None:
    """Removes what earlier lives of this worker left in a staging directory."""
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir(path):
            if not name.startswith(f".sandloom-{life}-"):
                os.unlink(os.path.join(path, name))


def staging_name() -> str:
    return f".sandloom-{life}-{secrets.token_hex(8)}.part"
