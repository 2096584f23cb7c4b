"""One pass over the trees of a sandbox, by descriptor, in pieces, while the sandbox may change them."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
from collections.abc import Iterator, Sequence
from typing import Any

# The same as SCAN_FLAGS of openat.py, which is not loaded here.
_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
# Each level holds two descriptors.
MAX_DEPTH = 200
_ENTRIES_PER_LOOK_AT_THE_CLOCK = 64
# Files with several names are counted once as long as so many can be remembered, then once for each name.
_MAX_REMEMBERED = 200_000
# Gone, swapped for something else: what is there is seen by the next pass.
_CHANGED = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ESTALE})


class Walk:
    """``byte_count`` (as allocated) and ``inodes`` of all below ``paths``; the directories there themselves are not
    counted.

    Ends early, with ``over`` set, when a bound is passed. ``problem``: why not all could be counted.
    """

    def __init__(self, paths: Sequence[str], max_bytes: int | None, max_inodes: int | None) -> None:
        self.byte_count = 0
        self.inodes = 0
        self.over = False
        self.problem = ""
        self.began = time.monotonic()
        self._bounds = (max_bytes, max_inodes)
        self._roots = list(paths)
        self._levels: list[tuple[int, Iterator[os.DirEntry[str]]]] = []
        self._device = -1
        self._linked: set[int] = set()
        self._looked_at = 0

    def step(self, until: float) -> bool:
        """Go on until ``time.monotonic()`` is ``until``; whether it is over. Then all is closed."""
        while not self.over and not self.problem:
            if not self._levels:
                if not self._roots:
                    return True
                self._enter(self._roots.pop(), None)
            elif not self._read_on(until):
                return False
        self.close()
        return True

    def result(self) -> dict[str, Any]:
        return {
            "bytes": self.byte_count,
            "inodes": self.inodes,
            "over": self.over,
            "problem": self.problem,
            "began": self.began,
        }

    def close(self) -> None:
        while self._levels:
            self._leave()

    def _read_on(self, until: float) -> bool:
        """False when time is up."""
        fd, entries = self._levels[-1]
        depth = len(self._levels)
        for entry in entries:
            self._count(fd, entry)
            if self.over or self.problem or len(self._levels) > depth:
                return True
            self._looked_at += 1
            if self._looked_at % _ENTRIES_PER_LOOK_AT_THE_CLOCK == 0 and time.monotonic() >= until:
                return False
        self._leave()
        return True

    def _count(self, parent_fd: int, entry: os.DirEntry[str]) -> None:
        try:
            found = entry.stat(follow_symlinks=False)
        except OSError as error:
            self._failed(error)
            return
        is_directory = stat.S_ISDIR(found.st_mode)
        if found.st_nlink > 1 and not is_directory:
            if found.st_ino in self._linked:
                return
            if len(self._linked) < _MAX_REMEMBERED:
                self._linked.add(found.st_ino)
        self.inodes += 1
        self.byte_count += 512 * found.st_blocks
        max_bytes, max_inodes = self._bounds
        self.over = (max_bytes is not None and self.byte_count > max_bytes) or (
            max_inodes is not None and self.inodes > max_inodes
        )
        if is_directory and not self.over:
            self._enter(entry.name, parent_fd)

    def _enter(self, name: str, parent_fd: int | None) -> None:
        if len(self._levels) >= MAX_DEPTH:
            self.problem = f"directories lie more than {MAX_DEPTH} deep"
            return
        try:
            fd = os.open(name, _FLAGS, dir_fd=parent_fd)
        except OSError as error:
            self._failed(error)
            return
        device = os.fstat(fd).st_dev
        if parent_fd is None:
            self._device = device
        if device != self._device:
            os.close(fd)
            return
        try:
            self._levels.append((fd, os.scandir(fd)))
        except OSError as error:
            os.close(fd)
            self._failed(error)

    def _leave(self) -> None:
        fd, entries = self._levels.pop()
        with contextlib.suppress(AttributeError):
            entries.close()  # type: ignore[attr-defined]
        os.close(fd)

    def _failed(self, error: OSError) -> None:
        if error.errno in (errno.EACCES, errno.EPERM):
            # Without root the sandbox's user is the worker's, and it may close what it owns.
            self.problem = "a directory is closed to the worker"
        elif error.errno not in _CHANGED:
            self.problem = f"the disk cannot be read: {os.strerror(error.errno or 0)}"
