"""Calls on whole trees of one sandbox: archives, and searches by name and by content."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass

from sandloom.execution.archive_in import Extracted, Extraction
from sandloom.execution.archive_out import ArchiveOut
from sandloom.execution.file_entries import Entry, entry_of
from sandloom.execution.file_faults import FaultKind, FileFault, translated
from sandloom.execution.glob_pattern import GlobPattern, name_pattern
from sandloom.execution.line_search import LineMatch, Matches, Search, search_file
from sandloom.execution.listing import PAGE_BYTES
from sandloom.execution.openat import SCAN_FLAGS, open_regular, set_directory_mode
from sandloom.execution.path_locks import Use
from sandloom.execution.paths import SandboxPath, parse_path
from sandloom.execution.places import Places
from sandloom.execution.tar_reader import TarReader
from sandloom.execution.tree_walk import Found, TreeBounds, TreeWalk


@dataclass(frozen=True, slots=True)
class TreeLimits:
    """``archive`` bounds both directions, ``search`` each search."""

    max_archive_bytes: int = 4 << 30
    archive: TreeBounds = TreeBounds(max_entries=1_000_000, max_depth=128, seconds=3600)  # noqa: RUF009 - frozen
    search: TreeBounds = TreeBounds(max_entries=200_000, max_depth=128, seconds=10)  # noqa: RUF009 - frozen


@dataclass(frozen=True, slots=True)
class Globbed:
    """Sorted by path. ``truncated``: there may be more; which ones are here is then the file system's choice."""

    entries: list[Entry]
    truncated: bool


@dataclass(frozen=True, slots=True)
class Grepped:
    """``searched`` and ``skipped`` count files; skipped are binary ones and those that cannot be opened."""

    matches: list[LineMatch]
    truncated: bool
    searched: int
    skipped: int


class SandboxTrees:
    """May be called from any thread; raises FileFault."""

    def __init__(self, places: Places, limits: TreeLimits | None = None) -> None:
        self._places = places
        self.limits = limits or TreeLimits()

    def open_archive(self, path: str) -> ArchiveOut:
        """The content of a directory, or one file, as a tar archive to be streamed; close it."""
        place = parse_path(path)
        with ExitStack() as stack:
            stack.enter_context(self._places.locks.using(Use.READ, place))
            fd, name = self._open_top(place)
            return ArchiveOut(
                fd, place.text, name, self.limits.archive, self.limits.max_archive_bytes, self._places.acting,
                stack.pop_all(),
            )  # fmt: skip

    def extract(self, path: str, chunks: Iterable[bytes]) -> Extracted:
        """Extracts a tar archive into the directory, which is made when it is missing below a parent that is there.

        Durable when it returns. What ``chunks`` raises passes through, and leaves what came before, as do
        ARCHIVE_INVALID and TOO_LARGE.
        """
        place = parse_path(path, change=True)
        with (
            self._places.locks.using(Use.WRITE, place),
            self._target(place) as top_fd,
            self._places.staging() as staging_fd,
            self._places.room.growing(place.text) as grow,
        ):
            extraction = Extraction(top_fd, staging_fd, self.limits.archive, self.limits.max_archive_bytes)
            reader = TarReader(extraction)
            inodes = 0
            try:
                for chunk in chunks:
                    grow(len(chunk))
                    with self._places.acting():
                        reader.feed(chunk)
                    grow(0, inodes=extraction.entries - inodes)
                    inodes = extraction.entries
                reader.finish()
                with translated(place.text):
                    extraction.settle()
            finally:
                with self._places.acting():
                    extraction.close()
        return extraction.counts

    def glob(self, path: str, pattern: str, limit: int) -> Globbed:
        """What lies below the directory and matches; never more than ``limit`` entries."""
        place, wanted = parse_path(path), GlobPattern(pattern)
        entries: list[Entry] = []
        left_bytes = PAGE_BYTES
        with self._walking(place) as walk:
            for found in _matching(walk, wanted):
                with suppress(OSError):
                    entry = entry_of(place.child(*found.parts), found.stat())
                    left_bytes -= len(entry.path) + 2 * len(entry.name) + 160
                    if len(entries) == limit or left_bytes < 0:
                        walk.cut = "more matches"
                        break
                    entries.append(entry)
        return Globbed(sorted(entries, key=lambda entry: entry.path), walk.cut is not None)

    def grep(self, path: str, search: Search, glob: str | None, max_matches: int) -> Grepped:
        """Lines of a file, or of the files below a directory whose path matches ``glob``."""
        place = parse_path(path)
        names = None if glob is None else name_pattern(glob)
        matches = Matches(max_matches)
        fd, file_name = self._open_top(place)
        if file_name is not None:
            return self._grep_file(fd, place, search, matches)
        searched = skipped = 0
        with self._walk(place, fd) as walk:
            for found in walk if names is None else _matching(walk, names):
                if not stat.S_ISREG(found.kind):
                    continue
                done = _grep_entry(found, place, search, matches, walk)
                searched, skipped = searched + done, skipped + (not done)
                if matches.full or walk.late():
                    break
        truncated = matches.full or walk.cut is not None
        return Grepped(matches.found, truncated, searched, skipped + walk.skipped)

    def _grep_file(self, fd: int, place: SandboxPath, search: Search, matches: Matches) -> Grepped:
        clock = TreeWalk(fd, self.limits.search)
        try:
            with self._places.locks.using(Use.READ, place), translated(place.text):
                done = search_file(fd, place, search, matches, clock.late)
        finally:
            os.close(fd)
        return Grepped(matches.found, matches.full or clock.cut is not None, int(done), int(not done))

    def _open_top(self, place: SandboxPath) -> tuple[int, bytes | None]:
        """A directory, to be scanned, and None; or a regular file, to be read, and its name."""
        name = place.name if place.parts else b"."
        with translated(place.text), self._places.acting(), self._places.parent(place) as parent_fd:
            try:
                return os.open(name, SCAN_FLAGS, dir_fd=parent_fd), None
            except NotADirectoryError:
                return open_regular(parent_fd, name), name

    @contextmanager
    def _walking(self, place: SandboxPath) -> Iterator[TreeWalk]:
        fd, file_name = self._open_top(place)
        if file_name is not None:
            os.close(fd)
            raise FileFault(FaultKind.WRONG_KIND, f"{place.text} is not a directory")
        with self._walk(place, fd) as walk:
            yield walk

    @contextmanager
    def _walk(self, place: SandboxPath, fd: int) -> Iterator[TreeWalk]:
        """Inside, system calls are made as the sandbox's user."""
        try:
            with self._places.locks.using(Use.READ, place), translated(place.text), self._places.acting():
                yield TreeWalk(fd, self.limits.search)
        finally:
            os.close(fd)

    @contextmanager
    def _target(self, place: SandboxPath) -> Iterator[int]:
        with translated(place.text), self._places.acting(), self._places.parent(place) as parent_fd:
            name = place.name if place.parts else b"."
            if place.parts:
                with suppress(FileExistsError):
                    os.mkdir(name, 0o755, dir_fd=parent_fd)
                    set_directory_mode(parent_fd, name, 0o755)
            top_fd = os.open(name, SCAN_FLAGS, dir_fd=parent_fd)
        try:
            yield top_fd
        finally:
            os.close(top_fd)


def _matching(walk: TreeWalk, pattern: GlobPattern) -> Iterator[Found]:
    states = [pattern.start]
    for found in walk:
        depth = len(found.parts)
        matched, following = pattern.step(states[depth - 1], found.name)
        states[depth:] = [following]
        found.enter = found.enter and bool(following)
        if matched:
            yield found


def _grep_entry(found: Found, place: SandboxPath, search: Search, matches: Matches, walk: TreeWalk) -> bool:
    try:
        fd = open_regular(found.parent_fd, found.name, looked=True)
    except OSError:  # gone, closed to the sandbox's own user, leased, or of another kind by now
        return False
    try:
        return search_file(fd, place.child(*found.parts), search, matches, walk.late)
    except OSError:
        return False
    finally:
        os.close(fd)
