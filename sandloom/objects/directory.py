"""An object store in a directory of this machine, for what a deployment without one keeps on each worker."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from sandloom.errors import DigestMismatch
from sandloom.objects.contract import ObjectInfo, ObjectMissing

_CHUNK_BYTES = 256 * 1024


class DirectoryStore:
    """Keys are relative paths. The directory is the service's alone."""

    def __init__(self, root: Path) -> None:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        root.chmod(0o700)
        self._root = root

    def put(self, key: str, chunks: Iterable[bytes], *, sha256: str | None = None) -> int:
        target = self._path(key)
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = self._root / f".{os.urandom(8).hex()}"
        digest, size_bytes = hashlib.sha256(), 0
        try:
            with open(draft, "xb") as stream:
                for chunk in chunks:
                    digest.update(chunk)
                    size_bytes += stream.write(chunk)
                stream.flush()
                os.fsync(stream.fileno())
            if sha256 not in (None, digest.hexdigest()):
                raise DigestMismatch
            os.replace(draft, target)
        finally:
            draft.unlink(missing_ok=True)
        return size_bytes

    @contextmanager
    def get(self, key: str) -> Iterator[Iterator[bytes]]:
        try:
            stream = open(self._path(key), "rb")  # noqa: SIM115 - closed below
        except FileNotFoundError:
            raise ObjectMissing(key) from None
        with stream:
            yield iter(lambda: stream.read(_CHUNK_BYTES), b"")

    def head(self, key: str) -> ObjectInfo | None:
        try:
            found = self._path(key).stat()
        except FileNotFoundError:
            return None
        return ObjectInfo(key, found.st_size, found.st_mtime)

    def delete(self, key: str) -> None:
        self._path(key).unlink(missing_ok=True)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        names = (
            str(Path(path, name).relative_to(self._root)) for path, _, files in os.walk(self._root) for name in files
        )
        for key in sorted(name for name in names if name.startswith(prefix) and not name.startswith(".")):
            found = self.head(key)
            if found is not None:
                yield found

    def _path(self, key: str) -> Path:
        if key.startswith("/") or ".." in key.split("/"):
            raise ValueError(f"no key of an object: {key!r}")
        return self._root / key
