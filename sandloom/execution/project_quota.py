"""Project quotas of a file system (ext4 and xfs mounted with ``prjquota``): the kernel itself bounds a tree."""

from __future__ import annotations

import ctypes
import fcntl
import os
import stat
import struct
from collections.abc import Sequence

from sandloom.execution.openat import SAFE_FLAGS, SCAN_FLAGS
from sandloom.execution.spec import BudgetsUnavailable

_libc = ctypes.CDLL(None, use_errno=True)
_SYS_QUOTACTL_FD = 443  # the same on every architecture
_PROJECT = 2
_GET, _SET = 0x800007, 0x800008
_LIMITS = 1 | 4  # of blocks and of inodes
# struct if_dqblk: hard and soft limit in KiB, bytes in use; hard and soft limit of inodes, inodes in use; two times
_BLOCK = struct.Struct("=8QI4x")
# struct fsxattr: flags, extent size, extents, project, another extent size
_ATTRIBUTES = struct.Struct("=5I8x")
_GET_ATTRIBUTES, _SET_ATTRIBUTES = 0x801C581F, 0x401C5820
_INHERITED = 0x200
#: Above what people number by hand; a sandbox's project is this and its uid.
_FIRST_PROJECT = 0x5A00_0000


def project_of(uid: int) -> int:
    """Uids of sandboxes are unique on a file system, and so are these."""
    return (_FIRST_PROJECT + uid) % 0xFFFF_FFFE + 1


class ProjectQuota:
    """The quotas of the file system that holds a directory. Methods raise ``OSError``."""

    def __init__(self, directory: str) -> None:
        """Raises ``BudgetsUnavailable`` where there are none."""
        self._fd = os.open(directory, SCAN_FLAGS)
        try:
            self.usage(_FIRST_PROJECT)
        except OSError as error:
            os.close(self._fd)
            raise BudgetsUnavailable(
                f"the file system of {directory} has no project quota in force: mount ext4 or xfs with prjquota"
            ) from error

    def close(self) -> None:
        os.close(self._fd)

    def usage(self, project: int) -> tuple[int, int]:
        """Bytes and inodes in use."""
        buffer = ctypes.create_string_buffer(_BLOCK.size)
        self._call(_GET, project, buffer)
        _, _, used_bytes, _, _, used_inodes, *_ = _BLOCK.unpack(buffer.raw)
        return used_bytes, used_inodes

    def bound(self, project: int, max_bytes: int | None, max_inodes: int | None) -> None:
        """``None``: no bound."""
        kib = -(-(max_bytes or 0) // 1024)
        inodes = max_inodes or 0
        text = _BLOCK.pack(kib, kib, 0, inodes, inodes, 0, 0, 0, _LIMITS)
        self._call(_SET, project, ctypes.create_string_buffer(text, _BLOCK.size))

    def _call(self, command: int, project: int, buffer: ctypes.Array[ctypes.c_char]) -> None:
        number = ctypes.c_uint(command << 8 | _PROJECT)
        if _libc.syscall(_SYS_QUOTACTL_FD, self._fd, number, ctypes.c_uint(project), buffer) != 0:
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error))


def assign(paths: Sequence[str], project: int) -> None:
    """Charge what lies in these directories, and what will be made there, to ``project``.

    Nothing may run in them meanwhile. Interrupted, the next call starts over. Raises ``OSError``.
    """
    for path in paths:
        fd = os.open(path, SCAN_FLAGS)
        try:
            if project_at(fd) != project:
                _assign_below(fd, project)
                _set_project(fd, project, inherited=True)
        finally:
            os.close(fd)


def project_at(fd: int) -> int:
    return int(_attributes(fd)[3])


def _assign_below(top_fd: int, project: int) -> None:
    for _, directories, names, fd in os.fwalk(".", dir_fd=top_fd, follow_symlinks=False):
        for name in (*directories, *names):
            found = os.stat(name, dir_fd=fd, follow_symlinks=False)
            if not (stat.S_ISDIR(found.st_mode) or stat.S_ISREG(found.st_mode)):
                continue
            own_fd = os.open(name, os.O_RDONLY | SAFE_FLAGS, dir_fd=fd)
            try:
                _set_project(own_fd, project, inherited=stat.S_ISDIR(found.st_mode))
            finally:
                os.close(own_fd)


def _attributes(fd: int) -> list[int]:
    buffer = bytearray(_ATTRIBUTES.size)
    fcntl.ioctl(fd, _GET_ATTRIBUTES, buffer)
    return list(_ATTRIBUTES.unpack(buffer))


def _set_project(fd: int, project: int, *, inherited: bool) -> None:
    flags, extent, extents, _, other = _attributes(fd)
    flags |= _INHERITED if inherited else 0
    fcntl.ioctl(fd, _SET_ATTRIBUTES, _ATTRIBUTES.pack(flags, extent, extents, project, other))
