"""Digests of streams."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence

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


class PartDigests:
    """Cuts a stream into parts of ``part_bytes``, the last one shorter, and keeps the digest of each."""

    def __init__(self, part_bytes: int) -> None:
        self._part_bytes = part_bytes
        self.sha256: list[str] = []

    def over(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        for part in parts_of(chunks, self._part_bytes):
            self.sha256.append(hashlib.sha256(part).hexdigest())
            yield part


def checked_parts(chunks: Iterable[bytes], sha256: Sequence[str], part_bytes: int) -> Iterator[bytes]:
    """The parts of a stream, each passed on only once its digest was found right. Raises DigestMismatch."""
    expected = iter(sha256)
    for part in parts_of(chunks, part_bytes):
        if hashlib.sha256(part).hexdigest() != next(expected, None):
            raise DigestMismatch
        yield part
    if next(expected, None) is not None:
        raise DigestMismatch


def parts_of(chunks: Iterable[bytes], part_bytes: int) -> Iterator[bytes]:
    """Chunks of any size as pieces of ``part_bytes``, the last one shorter."""
    held = bytearray()
    for chunk in chunks:
        held += chunk
        while len(held) >= part_bytes:
            part = bytes(memoryview(held)[:part_bytes])
            del held[:part_bytes]
            yield part
            del part
    if held:
        yield bytes(held)
