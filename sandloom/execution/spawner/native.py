"""The library of ``native/start.c``, called from the spawner: a command starts without a fork of Python."""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
from collections.abc import Sequence
from typing import Any

# The numbers of ``enum step``; the words appear in messages for operators.
_STEPS = (
    "", "control group", "descriptors", "signals", "chdir", "keyctl", "oom_score_adj", "sched_setaffinity", "setrlimit",
    "open", "setgroups", "setresgid", "setresuid", "prctl", "execve",
)  # fmt: skip
_UNLIMITED = (1 << 64) - 1


class _Fault(ctypes.Structure):
    _fields_ = (("number", ctypes.c_int32), ("step", ctypes.c_int32))


class _Strings(ctypes.Structure):
    _fields_ = (("block", ctypes.c_char_p), ("count", ctypes.c_size_t))


class Native:
    """``load`` it, then ``start`` commands one at a time."""

    def __init__(self, library: ctypes.CDLL) -> None:
        array, size, integer = ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int64
        self._start = library.sandloom_start
        self._start.restype = integer
        self._start.argtypes = (
            *(_Strings, _Strings, array, size),
            *(_Strings, _Strings, array, array, size),
            *(array, size),
            *(integer, integer, ctypes.POINTER(_Fault)),
        )
        self._fault = _Fault()
        self._at = ctypes.byref(self._fault)

    def start(self, request: dict[str, Any], fds: Sequence[int]) -> int:
        """Start the command as ``child.start`` does; ``fds`` become 0, 1, 2 …. Returns the pid to reap.

        Raises ``OSError`` when no process was made, and ``NeverRan`` when there is one that did not become the command.
        """
        opens = request["open"]
        limits = [value & _UNLIMITED for triple in request["rlimits"] for value in triple]
        cpus = _mask(request["cpus"])
        uid, gid = (request["uid"], request["gid"]) if request["switch_user"] else (-1, -1)
        pid: int = self._start(
            _strings(request["argv"]),
            _strings([f"{name}={value}" for name, value in request["env"].items()]),
            struct.pack(f"{len(fds)}i", *fds),
            len(fds),
            _strings(request["attach"]),
            _strings([path for path, _ in opens]),
            struct.pack(f"{len(opens)}i", *(number for _, number in opens)),
            struct.pack(f"{len(limits)}Q", *limits),
            len(limits) // 3,
            cpus,
            len(cpus),
            uid,
            gid,
            self._at,
        )
        if pid < 0:
            raise OSError(-pid, os.strerror(-pid))
        if self._fault.step:
            number = self._fault.number
            raise NeverRan(pid, OSError(number, os.strerror(number), _STEPS[self._fault.step]))
        return pid


def _mask(cpus: Sequence[int]) -> bytes:
    """A set of processors as the kernel has it; empty for no numbers."""
    if not cpus:
        return b""
    words = [0] * (max(cpus) // 64 + 1)
    for cpu in cpus:
        words[cpu // 64] |= 1 << cpu % 64
    return struct.pack(f"{len(words)}Q", *words)


def _strings(words: Sequence[str]) -> _Strings:
    try:
        block = os.fsencode("\0".join(words))
    except UnicodeEncodeError as error:
        raise OSError(errno.EINVAL, str(error)) from error
    if block.count(0) != max(len(words) - 1, 0):
        raise OSError(errno.EINVAL, "embedded null byte")
    return _Strings(block, len(words))


class NeverRan(Exception):
    """Process ``pid`` is to be reaped like any other; ``fault`` is why it is not the command."""

    def __init__(self, pid: int, fault: OSError) -> None:
        super().__init__(str(fault))
        self.pid = pid
        self.fault = fault


def load(path: str) -> Native | None:
    """The library at ``path``; ``None`` if it cannot be used, or if another user could have written it."""
    try:
        library = open_library(path)
        return Native(library) if library.sandloom_usable() else None
    except (OSError, AttributeError):
        return None


def open_library(path: str) -> ctypes.CDLL:
    """Raises ``OSError`` for what is no library, and for one that another user could have written."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        info = os.fstat(fd)
        if info.st_uid not in {0, os.geteuid()} or info.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise PermissionError(errno.EPERM, "another user could have written it", path)
        # By its descriptor: what was looked at is what is loaded.
        return ctypes.CDLL(f"/proc/self/fd/{fd}", use_errno=True)
    finally:
        os.close(fd)
