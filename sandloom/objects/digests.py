"""Digests of streams."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator

from sandloom.errors import DigestMismatch


class Sha256:
    """Passes chunks on and adds them up: ``hexdigest`` and ``size_bytes`` are of what has passed so far."""

    def __init__(self) -> None:
        self._sum = hashlib.sha256()
        self.size_bytes = 0

    @property
    def hexdigest(self) -> str:
        return self._sum.hexdigest()

    def over(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        for chunk in chunks:
            self._sum.update(chunk)
            self.size_bytes += len(chunk)
            yield chunk


def checked(chunks: Iterable[bytes], sha256: str, size_bytes: int | None = None) -> Iterator[bytes]:
    """The chunks; at their end raises DigestMismatch unless they were what ``sha256`` (hex) is the digest of.

    ``size_bytes``: raises as soon as there are more than that, so that damage cannot fill a disk.
    """
    digest = Sha256()
    for chunk in digest.over(chunks):
        if size_bytes is not None and digest.size_bytes > size_bytes:
            raise DigestMismatch
        yield chunk
    if digest.hexdigest != sha256 or size_bytes not in (None, digest.size_bytes):
        raise DigestMismatch
