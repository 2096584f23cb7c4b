# Made from sandloom/sdk/aio/files.py by scripts/sync_sdk.py: change that one.
"""Files of a sandbox: absolute paths below /workspace, as text or, where one is not UTF-8, as bytes."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import httpx

from sandloom.contracts.files import (
    ArchiveAnswer,
    FileContent,
    FileEntry,
    FileList,
    GlobAnswer,
    GrepAnswer,
    ReplaceAnswer,
    path_fields,
)
from sandloom.errors import FileMissing
from sandloom.sdk.http import unreachable
from sandloom.sdk.local_files import read_pieces, save
from sandloom.sdk.local_trees import Unpacked, pack, unpack
from sandloom.sdk.transport import Transport
from sandloom.sdk.waiting import consumed, outgoing

if TYPE_CHECKING:
    from sandloom.sdk.sandbox import Sandbox

Place = str | bytes
#: Is called with the bytes moved so far, and how many there are; None: nobody knows.
Progress = Callable[[int, int | None], None]

#: Larger contents go over the raw route, which carries bytes as they are.
_INLINE_BYTES = 1 << 20
_PAGE = 1000


class Files:
    """``box.files``."""

    def __init__(self, sandbox: Sandbox, transport: Transport) -> None:
        self._sandbox = sandbox
        self._transport = transport

    def read(self, path: Place) -> bytes:
        """The content of a regular file. Raises FileMissing, FileKindUnsupported, FileTooLarge (use ``download``)."""
        answer = self._sandbox.fenced("GET", "/files", params=path_fields(path), safe=True)
        return base64.b64decode(FileContent.model_validate(answer.json()).content_base64)

    def read_text(self, path: Place, encoding: str = "utf-8") -> str:
        return (self.read(path)).decode(encoding)

    def write(self, path: Place, content: str | bytes, *, mode: int | None = None) -> None:
        """Replace or make the file, atomically; its directory must exist. ``mode`` is 0600 unless given."""
        data = content.encode() if isinstance(content, str) else content
        if len(data) > _INLINE_BYTES:
            self._put_raw(path, iter([data]), mode)
            return
        body = {**path_fields(path), "content_base64": base64.b64encode(data).decode("ascii")}
        self._sandbox.fenced("PUT", "/files", json=body if mode is None else {**body, "mode": mode}, safe=True)

    def replace(self, path: Place, old: str, new: str, *, count: int | None = None) -> int:
        """Replace a text in a file by another, atomically, at most ``count`` times; returns how often it was done."""
        body = {**path_fields(path), "old": old, "new": new, "count": count}
        answer = self._sandbox.fenced("POST", "/files/replace", json=body)
        return ReplaceAnswer.model_validate(answer.json()).replacements

    def list(self, path: Place = "/workspace") -> list[FileEntry]:
        """All entries of a directory, by name; one of more than 10,000 comes in no order."""
        return list(self.iterate(path))

    def iterate(self, path: Place = "/workspace") -> Iterator[FileEntry]:
        """The same, page by page, for directories that are too large for memory."""
        cursor: str | None = None
        while True:
            params = {**path_fields(path), "limit": _PAGE, "cursor": cursor}
            answer = self._sandbox.fenced("GET", "/files/list", params=params, safe=True)
            page = FileList.model_validate_json(answer.content)
            yield from page.entries
            cursor = page.cursor
            if cursor is None:
                return

    def stat(self, path: Place) -> FileEntry:
        """What lies at the path itself, link or not."""
        answer = self._sandbox.fenced("GET", "/files/stat", params=path_fields(path), safe=True)
        return FileEntry.model_validate(answer.json())

    def glob(self, pattern: str, path: str = "/workspace", *, limit: int | None = None) -> GlobAnswer:
        """Entries below ``path`` whose path there matches: ``*``, ``?``, ``[…]``, ``{a,b}``, and ``**`` for any number
        of directories."""
        params = {"pattern": pattern, "path": path, "limit": limit}
        answer = self._sandbox.fenced("GET", "/files/glob", params=params, safe=True)
        return GlobAnswer.model_validate(answer.json())

    def grep(
        self, pattern: str, path: Place = "/workspace", *, glob: str | None = None, max_matches: int = 100
    ) -> GrepAnswer:
        """Lines that match a regular expression (RE2), in a file or in the files below a directory."""
        body = {**path_fields(path), "pattern": pattern, "glob": glob, "max_matches": max_matches}
        answer = self._sandbox.fenced("POST", "/files/grep", json=body, safe=True)
        return GrepAnswer.model_validate(answer.json())

    def mkdir(self, path: Place, *, parents: bool = False) -> None:
        """Make a directory; with ``parents`` also what is missing above it, and one that exists is fine."""
        self._sandbox.fenced("POST", "/files/mkdir", json={**path_fields(path), "parents": parents})

    def delete(self, path: Place, *, recursive: bool = False) -> None:
        """Delete a file, a link (never its target) or a directory. Raises DirectoryNotEmpty without ``recursive``."""
        self._sandbox.fenced("POST", "/files/delete", json={**path_fields(path), "recursive": recursive})

    def move(self, source: Place, destination: Place, *, overwrite: bool = False) -> None:
        """Rename. Raises FileExists unless ``overwrite``."""
        body = {**path_fields(source, "source"), **path_fields(destination, "destination"), "overwrite": overwrite}
        self._sandbox.fenced("POST", "/files/move", json=body)

    def exists(self, path: Place) -> bool:
        """Whether anything lies there, be it a link that leads nowhere."""
        try:
            self.stat(path)
        except FileMissing:
            return False
        return True

    def upload(
        self,
        source: str | Path | BinaryIO,
        path: Place,
        *,
        mode: int | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Stream a local file, or an open one, into the sandbox in constant memory."""
        if isinstance(source, str | Path):
            with open(source, "rb") as file:
                self._put_raw(path, read_pieces(file), mode, progress, os.fstat(file.fileno()).st_size)
        else:
            self._put_raw(path, read_pieces(source), mode, progress)

    def download(self, path: Place, destination: str | Path, *, progress: Progress | None = None) -> int:
        """Stream a file of the sandbox to a local path; returns its size in bytes.

        The local file appears only when all of it has arrived. Raises FileNotFoundError without a directory for it.
        """
        with self._bytes("/files/raw", path, progress) as pieces:
            return consumed(pieces, partial(save, target=Path(destination)))

    def upload_archive(
        self, archive: Iterable[bytes], path: Place = "/workspace", *, progress: Progress | None = None
    ) -> ArchiveAnswer:
        """Stream a tar archive, not compressed, that is extracted into the directory. Raises ArchiveInvalid."""
        pieces = counted(outgoing(iter(archive)), progress, None)
        answer = self._transport.send("PUT", f"{self._sandbox.path}/archive", params=self._fence(path), content=pieces)
        return ArchiveAnswer.model_validate(answer.json())

    @contextmanager
    def archive(self, path: Place = "/workspace") -> Iterator[Iterator[bytes]]:
        """The content of a directory as a tar archive, in pieces."""
        with self._bytes("/archive", path) as pieces:
            yield pieces

    def upload_tree(self, source: str | Path, path: Place, *, progress: Progress | None = None) -> ArchiveAnswer:
        """Copy what a local directory holds into one of the sandbox, which is made when its parent is there."""
        return self.upload_archive(pack(Path(source)), path, progress=progress)

    def download_tree(self, path: Place, destination: str | Path, *, progress: Progress | None = None) -> Unpacked:
        """Copy what a directory of the sandbox holds into a local one, which must not exist and appears when all of it
        has arrived. Links that lead out of it are left out."""
        with self._bytes("/archive", path, progress) as pieces:
            return consumed(pieces, partial(unpack, target=Path(destination)))

    @contextmanager
    def _bytes(self, route: str, path: Place, progress: Progress | None = None) -> Iterator[Iterator[bytes]]:
        try:
            with self._transport.stream(f"{self._sandbox.path}{route}", params=self._fence(path)) as response:
                length = response.headers.get("Content-Length")
                yield counted(response.iter_bytes(), progress, None if length is None else int(length))
        except httpx.TransportError as error:
            raise unreachable(error) from error

    def _put_raw(
        self,
        path: Place,
        content: Iterator[bytes],
        mode: int | None = None,
        progress: Progress | None = None,
        size_bytes: int | None = None,
    ) -> None:
        params = {**self._fence(path), "mode": None if mode is None else f"{mode:03o}"}
        pieces = counted(outgoing(content), progress, size_bytes)
        self._transport.send("PUT", f"{self._sandbox.path}/files/raw", params=params, content=pieces)

    def _fence(self, path: Place) -> dict[str, str | int]:
        return {**path_fields(path), "generation": self._sandbox.generation}


def counted(pieces: Iterator[bytes], progress: Progress | None, size_bytes: int | None) -> Iterator[bytes]:
    """The pieces; ``progress`` is told about each that went by."""
    moved = 0
    for piece in pieces:
        yield piece
        moved += len(piece)
        if progress is not None:
            progress(moved, size_bytes)
