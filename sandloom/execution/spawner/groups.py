"""Ending every process of a cgroup."""

from __future__ import annotations

import contextlib
import os

from . import proctree

KILL_FILE = "cgroup.kill"


def kill(path: str) -> int:
    """One pass of KILL. ``path``: the group's ``cgroup.kill``, where the kernel does it all, else ``cgroup.procs``.

    Returns how many processes were found (with ``cgroup.kill``: 0, nobody counts). A group that is gone is empty.
    """
    if path.endswith(KILL_FILE):
        with contextlib.suppress(OSError):
            fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
            try:
                os.write(fd, b"1")
            finally:
                os.close(fd)
        return 0
    pids = members(path)
    proctree.kill(pids)
    return len(pids)


def members(procs_file: str) -> list[int]:
    """Pids in the group; 0, a process outside this PID namespace, is left out."""
    try:
        with open(procs_file, "rb") as stream:
            return [pid for pid in map(int, stream.read().split()) if pid > 0 and pid != os.getpid()]
    except OSError:
        return []
