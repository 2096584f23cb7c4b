"""A regular file of a sandbox, open for reading."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from sandloom.execution.file_faults import FaultKind, FileFault, translated

_CHUNK_BYTES = 1 << 20


class OpenFile:
    """``size_bytes`` and ``mtime_ms`` are those of the moment of opening; commands may change the file later."""

    def __init__(self, fd: int, path: str, lock: ExitStack) -> None:
        self._fd = fd
        self._path = path
        self._lock = lock
        found = os.fstat(fd)
        self.size_bytes = found.st_size
        self.mtime_ms = found.st_mtime_ns // 1_000_000

    def fileno(self) -> int:
        return self._fd

    def read_all(self, max_bytes: int) -> bytes:
        """From the start to the end, also when it grows meanwhile; TOO_LARGE above ``max_bytes``."""
        if self.size_bytes > max_bytes:
            raise self._too_large(self.size_bytes, max_bytes)
        parts: list[bytes] = []
        total = 0
        with translated(self._path):
            # One byte more than expected, so that one call sees the end.
            while part := os.pread(self._fd, max(self.size_bytes - total, 0) + 1, total):
                parts.append(part)
                total += len(part)
                if total > max_bytes:
                    raise self._too_large(max(total, os.fstat(self._fd).st_size), max_bytes)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def chunks(self, offset: int = 0, length: int | None = None) -> Iterator[bytes]:
        """At most ``length`` bytes from ``offset`` on, in pieces of at most 1 MiB; fewer when the file was cut."""
        end = self.size_bytes if length is None else offset + length
        while offset < end:
            with translated(self._path):
                part = os.pread(self._fd, min(_CHUNK_BYTES, end - offset), offset)
            if not part:
                return
            yield part
            offset += len(part)

    def close(self) -> None:
        """Also lets go of the path's lock."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            with contextlib.closing(self._lock):
                os.close(fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _too_large(self, size_bytes: int, max_bytes: int) -> FileFault:
        return FileFault(
            FaultKind.TOO_LARGE,
            f"{self._path} has {size_bytes} bytes; at most {max_bytes} fit here",
            size_bytes=size_bytes,
        )
