"""From a sandbox's path to a descriptor of the directory that holds it, as the sandbox's own user."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from sandloom.execution.directories import Directories
from sandloom.execution.disk import Room, Unbounded
from sandloom.execution.file_faults import FaultKind, FileFault, translated
from sandloom.execution.file_writer import open_staging
from sandloom.execution.identity import acting_as
from sandloom.execution.openat import PATH_FLAGS, leading_directories, open_directory
from sandloom.execution.path_locks import PathLocks, Use
from sandloom.execution.paths import SandboxPath, parse_path


class Places:
    """The places of one sandbox. ``locks`` must be the same object for every Places of a sandbox."""

    def __init__(
        self,
        directories: Directories,
        uid: int,
        gid: int,
        locks: PathLocks | None = None,
        room: Room | None = None,
    ) -> None:
        if os.geteuid() != 0 and uid != os.geteuid():
            raise ValueError(f"only root can handle files of uid {uid}")
        self.locks = locks or PathLocks()
        self.room = room or Unbounded()
        self._directories = directories
        self._uid, self._gid = uid, gid

    def acting(self) -> AbstractContextManager[None]:
        return acting_as(self._uid, self._gid)

    def changeable(self, path: str) -> SandboxPath:
        place = parse_path(path, change=True)
        if place.is_root:
            raise FileFault(FaultKind.PATH_INVALID, f"{place.text} itself cannot be changed")
        return place

    @contextmanager
    def reading(self, place: SandboxPath) -> Iterator[int]:
        """Inside, system calls are made as the sandbox's user. Gives an O_PATH descriptor of the parent."""
        with (
            self.locks.using(Use.READ, place),
            translated(place.text),
            self.acting(),
            self.parent(place) as parent_fd,
        ):
            yield parent_fd

    @contextmanager
    def parent(self, place: SandboxPath) -> Iterator[int]:
        """An O_PATH descriptor of the directory that holds ``place`` (of a root: the root itself).

        NOT_FOUND (with ``missing_parent``) names the first directory on the way that is not there.
        """
        base_fd = os.open(getattr(self._directories, place.root), PATH_FLAGS)
        try:
            parent_fd = open_directory(base_fd, place.parent_parts)
        except FileNotFoundError as error:
            raise _no_parent(place, leading_directories(base_fd, place.parent_parts)) from error
        finally:
            os.close(base_fd)
        try:
            yield parent_fd
        finally:
            os.close(parent_fd)

    @contextmanager
    def open_parent(self, place: SandboxPath) -> Iterator[int]:
        """The same, opened as the sandbox's user but used outside of that."""
        with translated(place.text), self.acting(), self.parent(place) as parent_fd:
            own_fd = os.dup(parent_fd)
        try:
            yield own_fd
        finally:
            os.close(own_fd)

    @contextmanager
    def staging(self) -> Iterator[int]:
        """A descriptor of the directory in which files wait for their names."""
        with translated("/"):
            staging_fd = open_staging(self._directories.staging, self._uid, self._gid)
        try:
            yield staging_fd
        finally:
            os.close(staging_fd)


def _no_parent(place: SandboxPath, present: int) -> FileFault:
    """``present``: how many of the directories above ``place`` are there."""
    missing = SandboxPath(place.root, place.parts[: min(present + 1, len(place.parent_parts))]).text
    return FileFault(
        FaultKind.NOT_FOUND,
        f"{place.text} has no parent: {missing} does not exist; correct the path, or make that directory"
        " first (mkdir with parents=true)",
        missing_parent=missing,
    )
