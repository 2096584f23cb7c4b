"""Files of a sandbox: absolute paths below /workspace."""

from __future__ import annotations

import base64
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import httpx

from sandloom.contracts.files import FileContent, FileEntry, FileList
from sandloom.sdk.transport import Transport, unreachable

if TYPE_CHECKING:
    from sandloom.sdk.sandbox import Sandbox

#: Larger contents go over the raw route, which carries bytes as they are.
_INLINE_BYTES = 1 << 20
_CHUNK_BYTES = 256 * 1024
_PAGE = 1000


class Files:
    """``box.files``."""

    def __init__(self, sandbox: Sandbox, transport: Transport) -> None:
        self._sandbox = sandbox
        self._transport = transport

    def read(self, path: str) -> bytes:
        """The content of a regular file. Raises FileMissing, FileKindUnsupported, FileTooLarge (use ``download``)."""
        answer = self._sandbox.fenced("GET", "/files", params={"path": path}, safe=True)
        return base64.b64decode(FileContent.model_validate(answer.json()).content_base64)

    def read_text(self, path: str, encoding: str = "utf-8") -> str:
        return self.read(path).decode(encoding)

    def write(self, path: str, content: str | bytes, *, mode: int | None = None) -> None:
        """Replace or make the file, atomically; its directory must exist. ``mode`` is 0600 unless given."""
        data = content.encode() if isinstance(content, str) else content
        if len(data) > _INLINE_BYTES and mode is None:
            self._put_raw(path, iter([data]))
            return
        body = {"path": path, "content_base64": base64.b64encode(data).decode("ascii")}
        self._sandbox.fenced("PUT", "/files", json=body if mode is None else {**body, "mode": mode}, safe=True)

    def list(self, path: str = "/workspace") -> list[FileEntry]:
        """All entries of a directory, by name."""
        entries: list[FileEntry] = []
        while True:
            params = {"path": path, "limit": _PAGE, "offset": len(entries)}
            page = FileList.model_validate(self._sandbox.fenced("GET", "/files/list", params=params, safe=True).json())
            entries += page.entries
            if not page.has_more or not page.entries:
                return entries

    def mkdir(self, path: str, *, parents: bool = False) -> None:
        """Make a directory; with ``parents`` also what is missing above it, and one that exists is fine."""
        self._sandbox.fenced("POST", "/files/mkdir", json={"path": path, "parents": parents})

    def delete(self, path: str, *, recursive: bool = False) -> None:
        """Delete a file, a link (never its target) or a directory. Raises DirectoryNotEmpty without ``recursive``."""
        self._sandbox.fenced("POST", "/files/delete", json={"path": path, "recursive": recursive})

    def move(self, source: str, destination: str, *, overwrite: bool = False) -> None:
        """Rename. Raises FileExists unless ``overwrite``."""
        body = {"source": source, "destination": destination, "overwrite": overwrite}
        self._sandbox.fenced("POST", "/files/move", json=body)

    def upload(self, source: str | Path | BinaryIO, path: str) -> None:
        """Stream a local file, or an open one, into the sandbox in constant memory."""
        if isinstance(source, str | Path):
            with open(source, "rb") as file:
                self._put_raw(path, _chunks(file))
        else:
            self._put_raw(path, _chunks(source))

    def download(self, path: str, destination: str | Path) -> int:
        """Stream a file of the sandbox to a local path; returns its size in bytes.

        The local file appears only when all of it has arrived.
        """
        target = Path(destination)
        draft = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
        try:
            with (
                self._transport.stream(
                    f"{self._sandbox.path}/files/raw",
                    params={"path": path, "generation": self._sandbox.generation},
                ) as response,
                draft.open("xb") as file,
            ):
                for chunk in response.iter_bytes(_CHUNK_BYTES):
                    file.write(chunk)
            os.replace(draft, target)
        except httpx.TransportError as error:
            raise unreachable(error) from error
        finally:
            draft.unlink(missing_ok=True)
        return target.stat().st_size

    def _put_raw(self, path: str, content: Iterator[bytes]) -> None:
        params = {"path": path, "generation": self._sandbox.generation}
        self._transport.send("PUT", f"{self._sandbox.path}/files/raw", params=params, content=content)


def _chunks(file: BinaryIO) -> Iterator[bytes]:
    while chunk := file.read(_CHUNK_BYTES):
        yield chunk
