"""A mount table for bwrap to start from, without what no command can need.

bwrap copies the whole table for each command and reads it once for each bind. So a spawner that is root keeps a
private one without the kernel's own file systems (sysfs, cgroups …). It hears of later mounts where the worker's are
shared; elsewhere it notices, by the identity of what is bound, and makes a new one.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from typing import Any

from . import linux

# Path, device, inode: a tuple that JSON has made a list of.
Source = Sequence[Any]

_NOT_NEEDED = frozenset(
    {
        "binfmt_misc", "bpf", "cgroup", "cgroup2", "configfs", "debugfs", "devpts", "efivarfs", "fusectl",
        "hugetlbfs", "mqueue", "nsfs", "pstore", "rpc_pipefs", "securityfs", "selinuxfs", "sysfs", "tracefs",
    }
)  # fmt: skip


class MountTable:
    """``check`` before each command; ``outer`` for paths that are only in the worker's table."""

    def __init__(self) -> None:
        self._namespace = os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
        self._root = os.open("/", os.O_PATH | os.O_CLOEXEC)
        self._small = False
        self._known: list[Source] = []
        self._leave_out()

    def outer(self, path: str) -> str:
        """``path`` in the worker's table, for as long as this process's descriptors are open."""
        return f"/proc/self/fd/{self._root}{path}" if self._small else path

    def check(self, fixed: list[Source], own: list[Source]) -> None:
        """See to it that each path is the file (device, inode) that the worker means.

        ``own`` ones, of a sandbox, are looked at each time; ``fixed`` ones, of the deployment, when they change.
        """
        if not self._small:
            return
        sources = own if fixed == self._known else [*fixed, *own]
        if not all(map(_same, sources)):
            linux.enter_mounts(self._namespace)
            self._small = False
            if not all(map(_same, sources)):
                # Not because of this table: whatever was there is going away.
                self._leave_out()
                return
            self._leave_out()
            if not all(map(_same, sources)):
                linux.enter_mounts(self._namespace)
                self._small = False
        self._known = fixed

    def _leave_out(self) -> None:
        """Without the right to do it everything stays as it is."""
        with contextlib.suppress(OSError):
            linux.unshare_mounts()
            self._small = True
            for target in _not_needed():
                linux.detach(target)


def _not_needed() -> list[str]:
    """Mount points to detach with all below. Under /proc nothing: a mount there may be what masks a file."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as stream:
        lines = [line.split() for line in stream]
    found: list[str] = []
    for words in lines:
        target, kind = words[4], words[words.index("-") + 1]
        # Of the machine's /dev bwrap takes the devices, and has a /dev/shm of its own.
        wanted = kind not in _NOT_NEEDED and target != "/dev/shm"
        if not wanted and not target.startswith(("/proc/", *(f"{above}/" for above in found))):
            found.append(target)
    return found


def _same(source: Source) -> bool:
    path, device, inode = source
    try:
        info = os.stat(path)
    except OSError:
        return False
    return (info.st_dev, info.st_ino) == (device, inode)
