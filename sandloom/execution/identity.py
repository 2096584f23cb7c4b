"""System calls with the file permissions of a sandbox's user, on the calling thread only.

A worker that is root would be allowed everything; with ``fsuid`` and ``fsgid`` switched the kernel clears the
capabilities that override permissions, makes new files belong to the sandbox, and charges its quota. So even a path
walk that went wrong reaches nothing that the sandbox's user cannot reach itself.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

_libc = ctypes.CDLL(None, use_errno=True)
_setfsuid, _setfsgid = _libc.setfsuid, _libc.setfsgid
_ASK = -1  # not a valid id: changes nothing, returns the current one


@contextmanager
def acting_as(uid: int, gid: int) -> Iterator[None]:
    """File permissions of ``uid`` and ``gid`` inside the block; nothing changes when this process is not root.

    Keep callers' code (callbacks, iterators) out of the block. Raises PermissionError when the switch is refused.
    """
    if os.geteuid() != 0:
        yield
        return
    if uid <= 0 or gid <= 0:
        raise PermissionError(f"refusing to act as uid {uid}, gid {gid}")
    old_gid = _setfsgid(gid)
    old_uid = _setfsuid(uid)
    try:
        # Both calls report no failure of their own.
        if _setfsuid(_ASK) != uid or _setfsgid(_ASK) != gid:
            raise PermissionError(f"the kernel refuses to act as uid {uid}, gid {gid}")
        yield
    finally:
        _setfsuid(old_uid)
        _setfsgid(old_gid)
