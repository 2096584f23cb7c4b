"""What an object store promises."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol


class ObjectMissing(LookupError):
    """There is no object of this key."""


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """``key`` as it is given to the store, so without the deployment's prefix. ``modified_seconds``: since the epoch,
    by the store's clock."""

    key: str
    size_bytes: int
    modified_seconds: float


class ObjectStore(Protocol):
    """Objects by key, below the deployment's prefix. Thread-safe; constant memory whatever the size of an object.

    Every method raises ObjectStoreUnavailable when the store does not do what it was asked. What was written is as
    whole as the store says; who reads compares digests (``checked``), since what lies in a store may be damaged.
    """

    def put(self, key: str, chunks: Iterable[bytes], *, sha256: str | None = None) -> int:
        """Store the chunks, replacing what was there; returns the number of bytes. All or nothing.

        ``sha256`` (hex): raises DigestMismatch, and stores nothing, when the chunks are something else.
        """
        ...

    def get(self, key: str) -> AbstractContextManager[Iterator[bytes]]:
        """The object's bytes in chunks. Raises ObjectMissing, also when it is entered."""
        ...

    def head(self, key: str) -> ObjectInfo | None: ...

    def delete(self, key: str) -> None:
        """Also when there is none."""
        ...

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """Objects whose key begins with ``prefix``, ordered by key."""
        ...
