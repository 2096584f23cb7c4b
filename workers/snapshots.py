"""What a sandbox holds, kept in the object store while it sleeps.

A snapshot is one compressed tar archive for each directory, and a manifest with the digests of their parts and the
templates that are attached. The manifest is written last, and its own digest is part of the snapshot's name, which the
database keeps: whatever was exchanged or damaged in the store is found before any of it is unpacked. ``/cache`` is left
out.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager, nullcontext
from typing import Any

import zstandard

from sandloom.clock import monotonic_seconds
from sandloom.errors import DigestMismatch, ObjectStoreUnavailable, SnapshotFailed
from sandloom.execution import template_mounts
from sandloom.execution.archive_in import Extraction
from sandloom.execution.archive_out import ArchiveOut
from sandloom.execution.directories import Directories
from sandloom.execution.file_faults import FaultKind, FileFault
from sandloom.execution.openat import DIRECTORY_FLAGS, SCAN_FLAGS
from sandloom.execution.tar_reader import TarReader
from sandloom.execution.tree_walk import TreeBounds
from sandloom.execution.workspace import WorkspaceRoot
from sandloom.ids import SandboxKey
from sandloom.objects import ObjectMissing, ObjectStore
from sandloom.objects.ahead import ahead
from sandloom.objects.digests import PartDigests, checked_parts
from sandloom.sandboxes.loose import ANNOUNCED_SECONDS
from sandloom.telemetry import get_logger

log = get_logger("sandloom.workers.snapshots")

MEMBERS = ("workspace", "home", "envs")
BOUNDS = TreeBounds(max_entries=2_000_000, max_depth=128, seconds=1800)
MAX_BYTES = 64 << 30
#: Nothing is put into the store after maintenance has removed what was announced.
MAX_SECONDS = ANNOUNCED_SECONDS - 600
PART_BYTES = 4 << 20
MAX_MANIFEST_BYTES = 16 << 20
#: 3 is zstd's own default; the window bounds what unpacking takes.
LEVEL = 3
_MAX_WINDOW_BYTES = 1 << 27
_PIECE_BYTES = 256 * 1024
#: Pieces that are packed while a part is on its way to the store, and parts that come while one is unpacked.
_PACKED_AHEAD = 64
_PARTS_AHEAD = 2


class Snapshots:
    """Any thread; one call for a sandbox at a time. Raises ObjectStoreUnavailable."""

    def __init__(self, store: ObjectStore, root: WorkspaceRoot) -> None:
        self._store = store
        self._root = root

    def save(self, key: SandboxKey, copy: SandboxKey | None = None, token: str = "") -> str:
        """The name of a new snapshot, which is the sandbox's, or that of ``copy``. Nothing may run in the sandbox.

        ``token``: the first part of the name, by which ``discard`` knows what was begun, too. Raises SnapshotFailed
        when it cannot be whole.
        """
        token = token or new_token()
        place = f"{_all_of(copy or key)}{token}/"
        directories = self._root.directories(key)
        until_seconds = monotonic_seconds() + MAX_SECONDS
        members = {name: self._save(place, name, directories, until_seconds) for name in MEMBERS}
        templates = template_mounts.remembered(directories)
        manifest = json.dumps({"v": 1, "part_bytes": PART_BYTES, "members": members, "templates": templates}).encode()
        digest = hashlib.sha256(manifest).hexdigest()
        self._store.put(f"{place}manifest.json", _in_time([manifest], until_seconds), sha256=digest)
        return f"{token}.{digest}"

    def duplicate(self, key: SandboxKey, snapshot: str, copy: SandboxKey, token: str) -> str:
        """The name of a new snapshot of ``copy`` with the same content, checked on its way. Raises DigestMismatch.

        ``token``: as for ``save``.
        """
        source_token, _, digest = snapshot.partition(".")
        source = f"{_all_of(key)}{source_token}/"
        manifest = self._manifest(source, digest)
        target = f"{_all_of(copy)}{token}/"
        until_seconds = monotonic_seconds() + MAX_SECONDS
        for name in MEMBERS:
            parts = manifest["members"][name]["sha256"]
            with self._get(f"{source}{name}.tar.zst") as chunks:
                checked = checked_parts(chunks, parts, manifest["part_bytes"])
                self._store.put(f"{target}{name}.tar.zst", _in_time(checked, until_seconds))
        with self._get(f"{source}manifest.json") as chunks:
            self._store.put(f"{target}manifest.json", _in_time(chunks, until_seconds), sha256=digest)
        return f"{token}.{digest}"

    def restore(self, key: SandboxKey, snapshot: str, uid: int, gid: int) -> None:
        """Makes the sandbox's directory, whole or not at all. Raises DigestMismatch, FileFault and WorkspaceFault."""
        token, _, digest = snapshot.partition(".")
        place = f"{_all_of(key)}{token}/"
        manifest = self._manifest(place, digest)

        def fill(top_fd: int) -> None:
            os.mkdir("staging", 0o700, dir_fd=top_fd)
            staging_fd = os.open("staging", os.O_RDONLY | DIRECTORY_FLAGS, dir_fd=top_fd)
            try:
                for name in MEMBERS:
                    self._restore(place, name, manifest, top_fd, staging_fd)
            finally:
                os.close(staging_fd)

        self._root.create_filled(key, uid, gid, fill)
        if manifest["templates"]:
            template_mounts.remember(self._root.directories(key), manifest["templates"])

    def is_there(self, key: SandboxKey, snapshot: str) -> bool:
        """Whether its manifest, and every archive in the size that it says, is in the store."""
        token, _, digest = snapshot.partition(".")
        place = f"{_all_of(key)}{token}/"
        try:
            members = self._manifest(place, digest)["members"]
        except DigestMismatch:
            return False
        found = [self._store.head(f"{place}{name}.tar.zst") for name in MEMBERS]
        return [info and info.size_bytes for info in found] == [members[name]["size_bytes"] for name in MEMBERS]

    def discard(self, key: SandboxKey, snapshot: str) -> None:
        discard(self._store, key, snapshot)

    def _save(self, place: str, name: str, directories: Directories, until_seconds: float) -> dict[str, Any]:
        digests = PartDigests(PART_BYTES)
        fd = os.open(getattr(directories, name), SCAN_FLAGS)
        try:
            with (
                ArchiveOut(fd, f"/{name}", None, BOUNDS, MAX_BYTES, nullcontext, ExitStack()) as archive,
                closing(ahead(_compressed(archive.chunks()), _PACKED_AHEAD)) as packed,
            ):
                size_bytes = self._store.put(f"{place}{name}.tar.zst", digests.over(_in_time(packed, until_seconds)))
        except FileFault as fault:
            raise SnapshotFailed(fault.detail) from fault
        if archive.skipped:
            log.info("left out of a snapshot", directory=name, sockets_and_the_like=archive.skipped)
        return {"size_bytes": size_bytes, "sha256": digests.sha256, "skipped": archive.skipped}

    def _restore(self, place: str, name: str, manifest: dict[str, Any], top_fd: int, staging_fd: int) -> None:
        parts = manifest["members"][name]["sha256"]
        member_fd = os.open(name, os.O_RDONLY | DIRECTORY_FLAGS, dir_fd=top_fd)
        try:
            extraction = Extraction(member_fd, staging_fd, BOUNDS, MAX_BYTES)
            reader = TarReader(extraction)
            try:
                with (
                    self._get(f"{place}{name}.tar.zst") as chunks,
                    closing(ahead(checked_parts(chunks, parts, manifest["part_bytes"]), _PARTS_AHEAD)) as whole,
                ):
                    for piece in _plain(whole):
                        reader.feed(piece)
                reader.finish()
                extraction.settle()
            finally:
                extraction.close()
        except zstandard.ZstdError as error:
            raise DigestMismatch(f"A snapshot cannot be unpacked: {error}.") from error
        except FileFault as fault:
            if fault.kind is FaultKind.ARCHIVE_INVALID:
                raise DigestMismatch(f"A snapshot cannot be unpacked: {fault.detail}.") from fault
            raise
        finally:
            os.close(member_fd)

    def _manifest(self, place: str, digest: str) -> dict[str, Any]:
        data = bytearray()
        with self._get(f"{place}manifest.json") as chunks:
            for chunk in chunks:
                data += chunk
                if len(data) > MAX_MANIFEST_BYTES:
                    raise DigestMismatch
        if hashlib.sha256(data).hexdigest() != digest:
            raise DigestMismatch
        manifest: dict[str, Any] = json.loads(data)
        return manifest

    @contextmanager
    def _get(self, key: str) -> Iterator[Iterator[bytes]]:
        try:
            with self._store.get(key) as chunks:
                yield chunks
        except ObjectMissing:
            raise DigestMismatch("A part of the snapshot is missing in the object store.") from None


def new_token() -> str:
    return secrets.token_hex(8)


def discard(store: ObjectStore, key: SandboxKey, snapshot: str) -> None:
    """Removes what the store has of the snapshot."""
    token = snapshot.partition(".")[0]
    for found in list(store.list(f"{_all_of(key)}{token}/")):
        store.delete(found.key)


def _all_of(key: SandboxKey) -> str:
    return f"snapshots/{key.tenant_id}/{key.sandbox_id}/"


def _in_time(chunks: Iterable[bytes], until_seconds: float) -> Iterator[bytes]:
    for chunk in chunks:
        if monotonic_seconds() > until_seconds:
            raise ObjectStoreUnavailable("The object store took too long to get the snapshot; repeat the call.")
        yield chunk


def _compressed(chunks: Iterable[bytes]) -> Iterator[bytes]:
    compressor: Any = zstandard.ZstdCompressor(level=LEVEL, write_checksum=True).chunker(chunk_size=_PIECE_BYTES)
    for chunk in chunks:
        yield from compressor.compress(chunk)
    yield from compressor.finish()


def _plain(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """In pieces of a bounded size, however far a part expands."""
    source: Any = _Source(chunks)
    with zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW_BYTES).stream_reader(source) as reader:
        while piece := reader.read(_PIECE_BYTES):
            yield piece
    for _ in chunks:
        pass  # the digests of what may follow the end of the archive


class _Source:
    """Chunks as something to be read."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._held = memoryview(b"")

    def read(self, size: int) -> memoryview:
        if not self._held:
            self._held = memoryview(next(self._chunks, b""))
        taken, self._held = self._held[:size], self._held[size:]
        return taken
