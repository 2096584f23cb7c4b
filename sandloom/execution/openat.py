"""Opening and renaming below a directory descriptor without ever following a link."""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
from collections.abc import Sequence

_libc = ctypes.CDLL(None, use_errno=True)

_SYS_OPENAT2 = 437  # the same on every architecture
_RESOLVE = 0x02 | 0x04 | 0x08  # NO_MAGICLINKS | NO_SYMLINKS | BENEATH
_RENAME_NOREPLACE = 1
_EAGAIN_RETRIES = 16
_NAMES_AT_ONCE = 15  # of the longest names, what the kernel takes as one path

DIRECTORY_FLAGS = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
PATH_FLAGS = os.O_PATH | DIRECTORY_FLAGS
#: For every open of a file: no FIFO, lease or terminal may hold the caller.
SAFE_FLAGS = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
SCAN_FLAGS = os.O_RDONLY | os.O_DIRECTORY | SAFE_FLAGS


def _raise_errno(name: bytes) -> None:
    number = ctypes.get_errno()
    raise OSError(number, os.strerror(number), name)


def _openat2(base_fd: int, path: bytes) -> int:
    how = struct.pack("=QQQ", PATH_FLAGS, 0, _RESOLVE)
    descriptor = _libc.syscall(_SYS_OPENAT2, base_fd, path, how, ctypes.c_size_t(len(how)))
    if descriptor < 0:
        _raise_errno(path)
    return int(descriptor)


def _probe() -> bool:
    root_fd = os.open("/", PATH_FLAGS)
    try:
        os.close(_openat2(root_fd, b"."))
    except OSError:  # ENOSYS before Linux 5.6; EPERM under an old seccomp filter
        return False
    finally:
        os.close(root_fd)
    return True


HAVE_OPENAT2 = _probe()


def open_directory(base_fd: int, parts: Sequence[bytes]) -> int:
    """An O_PATH descriptor of the directory ``parts`` below ``base_fd``; links on the way raise ELOOP or ENOTDIR."""
    if not HAVE_OPENAT2:
        return _walk(base_fd, parts)
    current = os.dup(base_fd)
    for begin in range(0, len(parts), _NAMES_AT_ONCE):
        try:
            following = _open_below(current, parts[begin : begin + _NAMES_AT_ONCE])
        finally:
            os.close(current)
        current = following
    return current


def _open_below(base_fd: int, parts: Sequence[bytes]) -> int:
    for _ in range(_EAGAIN_RETRIES):
        try:
            return _openat2(base_fd, b"/".join(parts))
        except OSError as error:
            # A rename somewhere at the same moment; the walk below is not disturbed by it.
            if error.errno != errno.EAGAIN:
                raise
    return _walk(base_fd, parts)


def _walk(base_fd: int, parts: Sequence[bytes]) -> int:
    current = os.dup(base_fd)
    for part in parts:
        try:
            following = os.open(part, PATH_FLAGS, dir_fd=current)
        finally:
            os.close(current)
        current = following
    return current


def leading_directories(base_fd: int, parts: Sequence[bytes]) -> int:
    """How many of ``parts``, from the first on, lead to a directory below ``base_fd``."""
    current = os.dup(base_fd)
    try:
        for count, part in enumerate(parts):
            try:
                following = os.open(part, PATH_FLAGS, dir_fd=current)
            except OSError:
                return count
            os.close(current)
            current = following
    finally:
        os.close(current)
    return len(parts)


def open_regular(parent_fd: int, name: bytes, *, looked: bool = False) -> int:
    """A reading descriptor of the regular file ``name``; EISDIR or ENXIO for anything else, ELOOP for a link."""
    # Opening a FIFO or device has effects of its own, so look first, unless the caller has; look again at what was
    # opened.
    if not looked:
        _demand_regular(os.stat(name, dir_fd=parent_fd, follow_symlinks=False).st_mode, name)
    descriptor = os.open(name, os.O_RDONLY | SAFE_FLAGS, dir_fd=parent_fd)
    try:
        _demand_regular(os.fstat(descriptor).st_mode, name)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _demand_regular(mode: int, name: bytes) -> None:
    if stat.S_ISREG(mode):
        return
    number = errno.EISDIR if stat.S_ISDIR(mode) else errno.ELOOP if stat.S_ISLNK(mode) else errno.ENXIO
    raise OSError(number, os.strerror(number), name)


def rename_no_replace(source_fd: int, source: bytes, target_fd: int, target: bytes) -> None:
    """Renames without replacing: EEXIST when ``target`` is there."""
    if _renameat2(source_fd, source, target_fd, target):
        return
    number = ctypes.get_errno()
    if number not in (errno.ENOSYS, errno.EINVAL):
        _raise_errno(target)
    _rename_by_link(source_fd, source, target_fd, target)


def _renameat2(source_fd: int, source: bytes, target_fd: int, target: bytes) -> bool:
    call = getattr(_libc, "renameat2", None)
    if call is None:
        ctypes.set_errno(errno.ENOSYS)
        return False
    return bool(call(source_fd, source, target_fd, target, ctypes.c_uint(_RENAME_NOREPLACE)) == 0)


def _rename_by_link(source_fd: int, source: bytes, target_fd: int, target: bytes) -> None:
    """For file systems without RENAME_NOREPLACE: exact for files; a directory may at worst replace an empty one."""
    if stat.S_ISDIR(os.stat(source, dir_fd=source_fd, follow_symlinks=False).st_mode):
        if _present(target_fd, target):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target)
        os.rename(source, target, src_dir_fd=source_fd, dst_dir_fd=target_fd)
    else:
        os.link(source, target, src_dir_fd=source_fd, dst_dir_fd=target_fd, follow_symlinks=False)
        os.unlink(source, dir_fd=source_fd)


def set_directory_mode(parent_fd: int, name: str | bytes, mode: int) -> None:
    """chmod of a directory without following a link; also of one that its owner may not open now."""
    fd = os.open(name, PATH_FLAGS, dir_fd=parent_fd)
    try:
        if stat.S_IMODE(os.fstat(fd).st_mode) != mode:
            os.chmod(f"/proc/self/fd/{fd}", mode)
    finally:
        os.close(fd)


def _present(parent_fd: int, name: bytes) -> bool:
    try:
        os.stat(name, dir_fd=parent_fd, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def sync_directory(parent_fd: int) -> None:
    """Makes the entries of the directory durable. One that this process may not list is left to the kernel."""
    try:
        descriptor = os.open(".", os.O_RDONLY | DIRECTORY_FLAGS, dir_fd=parent_fd)
    except PermissionError:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
