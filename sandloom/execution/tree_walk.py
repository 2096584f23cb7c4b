"""A walk through a tree that commands may change meanwhile: by descriptors, never through a link, bounded."""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from sandloom.execution.directory_entries import DirectoryEntry, entries_of
from sandloom.execution.openat import SCAN_FLAGS

_BUFFER_BYTES = 16 << 10  # one for each level
#: What this machine lacks or breaks. Any other error says that an entry is closed to this user, leased, or of another
#: kind by now.
NOT_OF_THE_ENTRY = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO})


@dataclass(frozen=True, slots=True)
class TreeBounds:
    """``max_depth``: levels below the top, each of which holds a descriptor. ``seconds`` count from the start."""

    max_entries: int = 200_000
    max_depth: int = 128
    seconds: float = 10.0


@dataclass(slots=True)
class Found:
    """One entry. ``parts`` lead to it from the top; ``kind`` is one of the format bits of ``stat``.

    ``enter``: whether the walk goes into this directory; whoever reads the walk may clear it.
    """

    parent_fd: int
    parts: tuple[bytes, ...]
    kind: int
    enter: bool

    @property
    def name(self) -> bytes:
        return self.parts[-1]

    def stat(self) -> os.stat_result:
        return os.stat(self.parts[-1], dir_fd=self.parent_fd, follow_symlinks=False)


@dataclass(slots=True)
class _Level:
    fd: int
    parts: tuple[bytes, ...]
    entries: Iterator[DirectoryEntry] = field(init=False)

    def __post_init__(self) -> None:
        self.entries = entries_of(self.fd, buffer_bytes=_BUFFER_BYTES)


class TreeWalk:
    """Everything below a directory, parents before what they hold, in the file systems' own order. Raises OSError for
    what is wrong with this machine.

    What vanishes or changes its kind is left out. ``skipped`` counts directories that could not be read; ``cut`` names
    the bound that ended the walk or kept it out of a directory.
    """

    def __init__(self, top_fd: int, bounds: TreeBounds) -> None:
        self._top_fd = top_fd
        self._bounds = bounds
        self._until = time.monotonic() + bounds.seconds
        self.seen = 0
        self.skipped = 0
        self.cut: str | None = None

    def late(self) -> bool:
        """Whether the time is over; says so in ``cut``."""
        if time.monotonic() <= self._until:
            return False
        self.cut = f"more than {self._bounds.seconds:g} seconds of work"
        return True

    def __iter__(self) -> Iterator[Found]:
        levels = [_Level(os.dup(self._top_fd), ())]
        try:
            while levels:
                entry = self._next(levels[-1])
                if entry is None:
                    os.close(levels.pop().fd)
                    continue
                if not self._within():
                    return
                found = self._look(levels[-1], entry)
                if found is not None:
                    yield found
                    if found.enter:
                        self._descend(levels, found)
        finally:
            for level in levels:
                os.close(level.fd)

    def _next(self, level: _Level) -> DirectoryEntry | None:
        try:
            return next(level.entries, None)
        except OSError as error:
            if error.errno in NOT_OF_THE_ENTRY:
                raise
            self.skipped += error.errno != errno.ENOENT
            return None

    def _within(self) -> bool:
        self.seen += 1
        if self.seen > self._bounds.max_entries:
            self.cut = f"more than {self._bounds.max_entries} entries"
            return False
        return self.seen % 64 != 0 or not self.late()

    def _look(self, level: _Level, entry: DirectoryEntry) -> Found | None:
        kind = entry.kind
        if kind == 0:
            try:
                kind = stat.S_IFMT(os.stat(entry.name, dir_fd=level.fd, follow_symlinks=False).st_mode)
            except OSError:
                return None
        return Found(level.fd, (*level.parts, entry.name), kind, stat.S_ISDIR(kind))

    def _descend(self, levels: list[_Level], found: Found) -> None:
        if len(levels) > self._bounds.max_depth:
            self.cut = f"directories more than {self._bounds.max_depth} levels deep"
            return
        try:
            fd = os.open(found.name, SCAN_FLAGS, dir_fd=found.parent_fd)
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno in NOT_OF_THE_ENTRY:
                raise
            self.skipped += 1
            return
        levels.append(_Level(fd, found.parts))
