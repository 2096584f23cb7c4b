"""Removing trees of any depth and width in constant memory, so that a crash in the middle is finished later.

A tree is first renamed into a *unit*, a directory of its own below ``<root>/.trash``. Levels that lie too deep to hold
their descriptors are renamed up into the unit and removed from there; nothing needs to be remembered.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from sandloom.execution.openat import DIRECTORY_FLAGS, SCAN_FLAGS, set_directory_mode

_MAX_LEVELS = 24  # two descriptors each
_FOREVER = float("inf")
_TURN_SECONDS = 20.0
# The entry is gone, has content again, or was swapped for another kind: the next pass sees what is there.
_LATER = frozenset({errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ELOOP})


@dataclass(slots=True)
class _Level:
    name: str
    fd: int
    entries: Iterator[os.DirEntry[str]]

    def close(self) -> None:
        with contextlib.suppress(AttributeError):
            self.entries.close()  # type: ignore[attr-defined]
        os.close(self.fd)


class Trash:
    """The directory for what is to be removed. Any thread may use it; several processes may share it."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._emptier: threading.Thread | None = None
        self._wanted = False

    def discard(self, parent_fd: int, name: bytes, seconds: float) -> None:
        """Takes the entry ``name`` of ``parent_fd`` out of sight at one stroke and removes it: what is left after
        ``seconds`` in the background. FileNotFoundError when it is not there."""
        done = False
        with self.unit() as unit:
            unit.take(parent_fd, name)
            with contextlib.suppress(OSError):
                done = unit.remove(time.monotonic() + seconds)
        if not done:
            self.empty_later()

    def empty_later(self) -> None:
        """``empty`` on a thread of its own, of which there is one at most."""
        with self._lock:
            self._wanted = True
            if self._emptier is None:
                self._emptier = threading.Thread(target=self._empty_all, name="trash", daemon=True)
                self._emptier.start()

    def join(self) -> None:
        """Waits for the end of what ``empty_later`` began."""
        emptier = self._emptier
        if emptier is not None:
            emptier.join()

    def _empty_all(self) -> None:
        pause = threading.Event()
        while True:
            with self._lock:
                if not self._wanted:
                    self._emptier = None
                    return
                self._wanted = False
            with contextlib.suppress(OSError):  # what cannot be removed now is tried again with the next
                while not self.empty(_TURN_SECONDS):
                    # A command may fill what is being removed; it must not get a whole processor for that.
                    pause.wait(_TURN_SECONDS)

    @contextmanager
    def unit(self) -> Iterator[TrashUnit]:
        """A locked unit; what is in it at the end of the block stays for ``empty``."""
        unit = None
        while unit is None:  # an ``empty`` at the same moment may take the new directory for an old one
            unit = self._claim(secrets.token_hex(8), create=True)
        try:
            yield unit
        finally:
            unit.close()

    def empty(self, seconds: float = _FOREVER) -> bool:
        """Removes what every unit holds, except units in use; False when something is left after ``seconds``."""
        deadline = time.monotonic() + seconds
        with os.scandir(self._path) as names:
            found = [entry.name for entry in names]
        done = True
        for name in found:
            unit = self._claim(name, create=False)
            if unit is None:
                done = done and not os.path.lexists(os.path.join(self._path, name))
                continue
            try:
                done = unit.remove(deadline) and done
            finally:
                unit.close()
        return done

    def _claim(self, name: str, *, create: bool) -> TrashUnit | None:
        path = os.path.join(self._path, name)
        if create:
            os.mkdir(path, 0o700)
        try:
            fd = os.open(path, os.O_RDONLY | DIRECTORY_FLAGS)
        except FileNotFoundError:
            return None
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.stat(path, follow_symlinks=False)
        except (BlockingIOError, FileNotFoundError):
            os.close(fd)
            return None
        return TrashUnit(path, fd)


class TrashUnit:
    """One thing being removed (or being built, so that a crash leaves it for removal)."""

    def __init__(self, path: str, fd: int) -> None:
        self._path = path
        self.fd = fd
        self._removed = 0
        self._failure: OSError | None = None

    def close(self) -> None:
        with contextlib.suppress(OSError):
            os.rmdir(self._path)
        os.close(self.fd)

    def take(self, parent_fd: int, name: bytes) -> None:
        """Moves the entry ``name`` of ``parent_fd`` into the unit; FileNotFoundError when it is not there."""
        self._rename(parent_fd, os.fsdecode(name))

    def remove(self, deadline: float = _FOREVER) -> bool:
        """Removes all that is in it; False at the deadline (of ``time.monotonic``). OSError when nothing can be."""
        while True:
            self._removed, self._failure = 0, None
            with os.scandir(self.fd) as entries:
                for entry in entries:
                    if time.monotonic() > deadline or not self._clear(entry.name, deadline):
                        return False
            if _is_empty(self.fd):
                return True
            if self._removed == 0:
                raise self._failure or OSError(errno.ENOTEMPTY, "entries appear as fast as they are removed")

    def _clear(self, name: str, deadline: float) -> bool:
        if self._drop(self.fd, name):
            return True
        levels = self._descend([], name)
        try:
            while levels:
                if time.monotonic() > deadline:
                    return False
                self._step(levels)
        finally:
            for level in levels:
                level.close()
        return True

    def _step(self, levels: list[_Level]) -> None:
        level = levels[-1]
        entry = next(level.entries, None)
        if entry is None:
            levels.pop().close()
            self._drop(levels[-1].fd if levels else self.fd, level.name)
        elif self._drop(level.fd, entry.name):
            pass
        elif len(levels) < _MAX_LEVELS:
            self._descend(levels, entry.name)
        else:
            with self._noting():
                self._rename(level.fd, entry.name)

    def _drop(self, parent_fd: int, name: str) -> bool:
        """Removes a file or an empty directory; False for a directory with entries."""
        try:
            try:
                os.unlink(name, dir_fd=parent_fd)
            except (IsADirectoryError, PermissionError):
                os.rmdir(name, dir_fd=parent_fd)
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                return False
            self._note(error)
            return True
        self._removed += 1
        return True

    def _descend(self, levels: list[_Level], name: str) -> list[_Level]:
        parent_fd = levels[-1].fd if levels else self.fd
        with self._noting():
            fd = _open_level(parent_fd, name)
            levels.append(_Level(name, fd, os.scandir(fd)))
        return levels

    def _rename(self, parent_fd: int, name: str) -> None:
        target = secrets.token_hex(8)
        try:
            os.rename(name, target, src_dir_fd=parent_fd, dst_dir_fd=self.fd)
        except PermissionError:
            # Moving a directory writes into it; only a worker that is not root meets this.
            set_directory_mode(parent_fd, name, stat.S_IRWXU)
            os.rename(name, target, src_dir_fd=parent_fd, dst_dir_fd=self.fd)
        self._removed += 1

    @contextmanager
    def _noting(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self._note(error)

    def _note(self, error: OSError) -> None:
        if error.errno not in _LATER:
            self._failure = error


def _is_empty(fd: int) -> bool:
    with os.scandir(fd) as entries:
        return next(entries, None) is None


def _open_level(parent_fd: int, name: str) -> int:
    try:
        fd = os.open(name, SCAN_FLAGS, dir_fd=parent_fd)
    except PermissionError:
        set_directory_mode(parent_fd, name, stat.S_IRWXU)
        return os.open(name, SCAN_FLAGS, dir_fd=parent_fd)
    mode = os.fstat(fd).st_mode
    if os.geteuid() != 0 and mode & stat.S_IRWXU != stat.S_IRWXU:
        os.fchmod(fd, stat.S_IRWXU)
    return fd
