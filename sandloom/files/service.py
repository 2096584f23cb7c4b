"""File calls of the API: small ones as a message to the owner, large bodies over the byte channel."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import Any

from sandloom.contracts.files import path_fields
from sandloom.contracts.ports import WorkerControl
from sandloom.errors import FileTooLarge, PathInvalid
from sandloom.files.channel import Archive, ByteChannel, RawFile
from sandloom.ids import SandboxKey
from sandloom.sandboxes.gateway import SandboxGateway
from sandloom.sandboxes.records import Route
from sandloom.sandboxes.service import Sandboxes
from sandloom.sandboxes.states import SandboxStatus

#: Bodies above this never travel in a message.
MAX_MESSAGE_BYTES = 256 * 1024
CALL_TIMEOUT_SECONDS = 30.0
MAX_PATH_BYTES = 4096


def _check(*paths: str) -> None:
    """What would not even make a message; everything else about a path is for the owner to say."""
    if any("\x00" in path or len(path.encode(errors="surrogatepass")) > MAX_PATH_BYTES for path in paths):
        raise PathInvalid


class Files:
    """Every method raises the error that the client is to see."""

    def __init__(
        self,
        sandboxes: Sandboxes,
        gateway: SandboxGateway,
        control: WorkerControl,
        channel: ByteChannel,
        *,
        max_file_api_bytes: int,
        max_raw_file_bytes: int,
    ) -> None:
        self._sandboxes = sandboxes
        self._gateway = gateway
        self._control = control
        self._channel = channel
        self._max_file_api_bytes = max_file_api_bytes
        self._max_raw_file_bytes = max_raw_file_bytes

    def read(self, key: SandboxKey, generation: int, path: str) -> bytes:
        """A whole regular file of at most MAX_FILE_API_BYTES; larger ones: FileTooLarge."""
        route = self._ready(key, generation, path)
        arguments = {**path_fields(path), "max_bytes": MAX_MESSAGE_BYTES}
        try:
            answer = self._call(route, "sandloom.files.read", arguments)
        except FileTooLarge:
            return self._read_large(route, path)
        return base64.b64decode(answer["content_base64"])

    def write(self, key: SandboxKey, generation: int, path: str, data: bytes, mode: int | None) -> dict[str, Any]:
        """Replace or create a file, whole or not at all."""
        if len(data) > self._max_file_api_bytes:
            raise FileTooLarge(
                f"A file of this call holds at most {self._max_file_api_bytes} bytes; use the raw route."
            )
        route = self._ready(key, generation, path)
        if len(data) > MAX_MESSAGE_BYTES:
            return self._channel.write(route, path, [data], len(data), mode, self._max_file_api_bytes)
        arguments = {**path_fields(path), "content_base64": base64.b64encode(data).decode(), "mode": mode}
        return self._call(route, "sandloom.files.write", arguments)

    def list(
        self, key: SandboxKey, generation: int, path: str, limit: int, offset: int, cursor: str | None
    ) -> dict[str, Any]:
        route = self._ready(key, generation, path)
        arguments = {**path_fields(path), "limit": limit, "offset": offset, "cursor": cursor}
        return self._call(route, "sandloom.files.list", arguments)

    def stat(self, key: SandboxKey, generation: int, path: str) -> dict[str, Any]:
        return self._call(self._ready(key, generation, path), "sandloom.files.stat", path_fields(path))

    def mkdir(self, key: SandboxKey, generation: int, path: str, parents: bool) -> dict[str, Any]:
        return self._call(
            self._ready(key, generation, path), "sandloom.files.mkdir", {**path_fields(path), "parents": parents}
        )

    def delete(self, key: SandboxKey, generation: int, path: str, recursive: bool) -> dict[str, Any]:
        arguments = {**path_fields(path), "recursive": recursive}
        return self._call(self._ready(key, generation, path), "sandloom.files.delete", arguments)

    def move(self, key: SandboxKey, generation: int, source: str, destination: str, overwrite: bool) -> dict[str, Any]:
        arguments = {**path_fields(source, "source"), **path_fields(destination, "destination"), "overwrite": overwrite}
        return self._call(self._ready(key, generation, source, destination), "sandloom.files.move", arguments)

    def replace(
        self, key: SandboxKey, generation: int, path: str, old: str, new: str, count: int | None
    ) -> dict[str, Any]:
        arguments = {**path_fields(path), "old": old, "new": new, "count": count}
        return self._call(self._ready(key, generation, path), "sandloom.files.replace", arguments)

    def glob(self, key: SandboxKey, generation: int, path: str, pattern: str, limit: int) -> dict[str, Any]:
        arguments = {**path_fields(path), "pattern": pattern, "limit": limit}
        return self._call(self._ready(key, generation, path), "sandloom.files.glob", arguments)

    def grep(
        self, key: SandboxKey, generation: int, path: str, pattern: str, glob: str | None, max_matches: int
    ) -> dict[str, Any]:
        arguments = {**path_fields(path), "pattern": pattern, "glob": glob, "max_matches": max_matches}
        return self._call(self._ready(key, generation, path), "sandloom.files.grep", arguments)

    def open_archive(self, key: SandboxKey, generation: int, path: str) -> Archive:
        return self._channel.read_archive(self._ready(key, generation, path), path)

    def put_archive(self, key: SandboxKey, generation: int, path: str, chunks: Iterable[bytes]) -> dict[str, Any]:
        return self._channel.write_archive(self._ready(key, generation, path), path, chunks)

    def open_raw(self, key: SandboxKey, generation: int, path: str, range_header: str | None) -> RawFile:
        return self._channel.read(self._ready(key, generation, path), path, range_header)

    def put_raw(
        self, key: SandboxKey, generation: int, path: str, chunks: Iterable[bytes], length_bytes: int | None,
        mode: int | None,
    ) -> dict[str, Any]:  # fmt: skip
        if length_bytes is not None and length_bytes > self._max_raw_file_bytes:
            raise FileTooLarge(f"A file of this call holds at most {self._max_raw_file_bytes} bytes.")
        route = self._ready(key, generation, path)
        return self._channel.write(route, path, chunks, length_bytes, mode, self._max_raw_file_bytes)

    def _ready(self, key: SandboxKey, generation: int, *paths: str) -> Route:
        _check(*paths)
        route = self._sandboxes.current(key, generation)
        return self._gateway.connect(key, generation) if route.status is SandboxStatus.ASSIGNED else route

    def _call(self, route: Route, task: str, arguments: dict[str, Any]) -> dict[str, Any]:
        named = {"sandbox_id": route.key.sandbox_id, "generation": route.generation, **arguments}
        return self._control.call(route.queue, task, route.key.tenant_id, named, timeout_seconds=CALL_TIMEOUT_SECONDS)

    def _read_large(self, route: Route, path: str) -> bytes:
        raw = self._channel.read(route, path)
        if raw.size > self._max_file_api_bytes:
            raw.close()
            raise FileTooLarge(
                f"The file has {raw.size} bytes; this call returns at most {self._max_file_api_bytes}.",
                size_bytes=raw.size,
            )
        return b"".join(raw.chunks)
