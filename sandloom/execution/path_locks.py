"""Which paths of one sandbox file calls are using; nobody ever waits."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum

from sandloom.execution.file_faults import FaultKind, FileFault
from sandloom.execution.paths import SandboxPath


class Use(Enum):
    """How a call uses a path."""

    READ = "read"  # shared with other readers of the path
    WRITE = "write"  # the path alone, not what lies below it
    TREE = "tree"  # the path and everything below it


@dataclass(frozen=True, slots=True, eq=False)
class _Held:
    path: SandboxPath
    use: Use

    def excludes(self, other: _Held) -> bool:
        if self.path == other.path:
            return not (self.use is Use.READ and other.use is Use.READ)
        return (self.use is Use.TREE and other.path.within(self.path)) or (
            other.use is Use.TREE and self.path.within(other.path)
        )


class PathLocks:
    """The locks of one sandbox. Every method raises FileFault(LOCKED) at once instead of waiting."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._held: list[_Held] = []
        self._closed = 0

    @property
    def busy(self) -> bool:
        """Whether any file call is in progress."""
        return bool(self._held)

    @contextmanager
    def using(self, use: Use, *paths: SandboxPath) -> Iterator[None]:
        """Holds all the paths, or none."""
        wanted = [_Held(path, use) for path in paths]
        with self._mutex:
            if self._closed:
                raise FileFault(FaultKind.LOCKED, "a lifecycle command or change of the sandbox is in progress")
            for mine in wanted:
                if any(mine.excludes(held) for held in self._held):
                    raise FileFault(FaultKind.LOCKED, f"another file call uses {mine.path.text}")
            self._held.extend(wanted)
        try:
            yield
        finally:
            with self._mutex:
                for mine in wanted:
                    self._held.remove(mine)

    @contextmanager
    def everything(self) -> Iterator[None]:
        """The whole sandbox, for a suspend, release or copy: refused while any call or other holder is inside."""
        with self._mutex:
            if self._held or self._closed:
                raise FileFault(FaultKind.LOCKED, "a file call or a lifecycle command is in progress")
            self._closed += 1
        try:
            yield
        finally:
            self._reopen()

    @contextmanager
    def lifecycle(self) -> Iterator[None]:
        """For a lifecycle command: refuses new file calls; those in progress may finish."""
        with self._mutex:
            self._closed += 1
        try:
            yield
        finally:
            self._reopen()

    def _reopen(self) -> None:
        with self._mutex:
            self._closed -= 1
