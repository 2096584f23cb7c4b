"""Giving a whole tree to another user. Nobody else may use the tree meanwhile."""

from __future__ import annotations

import os
import stat

from sandloom.execution.openat import SCAN_FLAGS


class TreeChanged(OSError):
    """A directory was moved while its tree was being given away."""


def give_tree(parent_fd: int, name: str, uid: int, gid: int) -> None:
    """Makes ``name`` and all below it belong to ``uid`` and ``gid``; links themselves, never their targets.

    Holds one descriptor at any depth. The top is given last, so an interrupted call can be told from a finished one.
    """
    current = os.open(name, SCAN_FLAGS, dir_fd=parent_fd)
    try:
        trail: list[tuple[int, int]] = []
        pending = [_give_entries(current, uid, gid)]
        while pending:
            if pending[-1]:
                here = os.fstat(current)
                current = _move(current, pending[-1].pop())
                trail.append((here.st_dev, here.st_ino))
                pending.append(_give_entries(current, uid, gid))
                continue
            pending.pop()
            if trail:
                current = _move(current, "..")
                above = os.fstat(current)
                if (above.st_dev, above.st_ino) != trail.pop():
                    raise TreeChanged(f"{name} changed while it was given to uid {uid}")
        os.fchown(current, uid, gid)
    finally:
        os.close(current)


def _move(current: int, name: str) -> int:
    following = os.open(name, SCAN_FLAGS, dir_fd=current)
    os.close(current)
    return following


def _give_entries(fd: int, uid: int, gid: int) -> list[str]:
    """Gives the entries of one directory; returns the names of its directories."""
    directories = []
    with os.scandir(fd) as entries:
        for entry in entries:
            found = entry.stat(follow_symlinks=False)
            if (found.st_uid, found.st_gid) != (uid, gid):
                os.chown(entry.name, uid, gid, dir_fd=fd, follow_symlinks=False)
            if stat.S_ISDIR(found.st_mode):
                directories.append(entry.name)
    return directories
