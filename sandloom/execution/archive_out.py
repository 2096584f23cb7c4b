"""A tree as a tar archive, made while it is read, in constant memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, ExitStack
from types import TracebackType
from typing import Self

from sandloom.execution import archive_native
from sandloom.execution.archive_native import NativeTree
from sandloom.execution.archive_tree import PythonTree
from sandloom.execution.file_faults import FaultKind, FileFault, translated
from sandloom.execution.tar_format import BLOCK_BYTES, END
from sandloom.execution.tree_walk import TreeBounds

_PIECE_BYTES = 256 * 1024


class ArchiveOut:
    """The bytes of the archive; close it. ``skipped`` counts what is no file, directory or link, or could not be read.

    An archive that left something out says so in a block of text behind its end, which tar readers ignore. A file that
    shrinks while it is read is filled up with zeros, as tar does it.
    """

    def __init__(
        self,
        fd: int,
        path: str,
        name: bytes | None,
        bounds: TreeBounds,
        max_bytes: int,
        acting: Callable[[], AbstractContextManager[None]],
        lock: ExitStack,
    ) -> None:
        """``fd``: the directory whose content is archived, or with ``name`` the one regular file."""
        self._fd = fd
        self._path = path
        self._name = name
        self._bounds = bounds
        self._max_bytes = max_bytes
        self._acting = acting
        self._lock = lock
        self._inner = self._pieces()
        self.skipped = 0

    def chunks(self) -> Iterator[bytes]:
        """Raises FileFault when a bound is met: what came until then is no archive."""
        while True:
            held, size_bytes = [], 0
            with translated(self._path), self._acting():
                for piece in self._inner:
                    held.append(piece)
                    size_bytes += len(piece)
                    if size_bytes >= _PIECE_BYTES:
                        break
            if not held:
                return
            yield held[0] if len(held) == 1 else b"".join(held)

    def close(self) -> None:
        """Also lets go of the path's lock."""
        self._inner.close()
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            with self._lock:
                os.close(fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _pieces(self) -> Generator[bytes, None, None]:
        with self._tree() as tree:
            if self._name is not None and isinstance(tree, PythonTree):
                yield from tree.file(self._fd, self._name)
            else:
                yield from tree.pieces()
            if tree.cut is not None:
                raise FileFault(FaultKind.TOO_LARGE, f"{self._path} cannot be archived whole: it has {tree.cut}")
            self.skipped = tree.skipped
        yield END
        if self.skipped:
            yield (b"sandloom: skipped=%d\n" % self.skipped).ljust(BLOCK_BYTES, b"\0")

    def _tree(self) -> NativeTree | PythonTree:
        functions = archive_native.load() if self._name is None else None
        if functions is None:
            return PythonTree(self._fd, self._bounds, self._max_bytes)
        return NativeTree(functions, self._fd, self._bounds, self._max_bytes)
