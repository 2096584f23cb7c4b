"""Files of sandboxes as an fsspec file system: ``sandloom://<sandbox_id>/workspace/data.csv``."""

from __future__ import annotations

import errno
import io
import os
import posixpath
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any, BinaryIO

from fsspec.spec import AbstractFileSystem

from sandloom.contracts.files import FileEntry
from sandloom.errors import (
    DirectoryNotEmpty,
    DiskFull,
    FileAccessDenied,
    FileExists,
    FileKindUnsupported,
    FileMissing,
    FilePathLocked,
    PathInvalid,
    SandboxNotFound,
    SandloomError,
    StaleGeneration,
    StaleRoute,
)
from sandloom.sdk import Client, Files, Sandbox

#: What a sandbox shows; only the first can be written.
_ROOTS = ("workspace", "home", "envs")
_ERRNO: dict[type[SandloomError], int] = {
    DirectoryNotEmpty: errno.ENOTEMPTY,
    DiskFull: errno.ENOSPC,
    FileAccessDenied: errno.EACCES,
    FileExists: errno.EEXIST,
    FileMissing: errno.ENOENT,
    FilePathLocked: errno.EAGAIN,
    PathInvalid: errno.EACCES,
    SandboxNotFound: errno.ENOENT,
    StaleGeneration: errno.ENOENT,
    StaleRoute: errno.ENOENT,
}


class SandloomFileSystem(AbstractFileSystem):
    """The service is the one that SANDBOX_BASE_URL and SANDBOX_API_KEY or SANDBOX_INTERNAL_TOKEN name, unless
    ``base_url`` and ``token`` do. Sandboxes have to be there already; their list is the directory ``sandloom://``.

    A file is carried whole when it is opened or closed. ``auto_mkdir`` makes directories above a file that is written.
    """

    protocol = "sandloom"
    root_marker = ""

    def __init__(
        self,
        base_url: str | None = None,
        token: str | None = None,
        tenant: str | None = None,
        auto_mkdir: bool = True,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.auto_mkdir = auto_mkdir
        given = {"SANDBOX_BASE_URL": base_url, "SANDBOX_API_KEY": token, "SANDBOX_TENANT": tenant}
        environ = {**os.environ, **{name: value for name, value in given.items() if value is not None}}
        self._client = Client.from_env(environ)
        self._boxes: dict[str, Sandbox] = {}

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(each) for each in path]
        return os.fspath(path).removeprefix("sandloom://").strip("/")

    def unstrip_protocol(self, name: str) -> str:
        return f"sandloom://{self._strip_protocol(name)}"

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        name = self._strip_protocol(path)
        with self._files(name) as (files, place):
            if files is None:
                return _directory(name)
            if place.strip("/") in _ROOTS:
                return _directory(name)
            return _info(name, files.stat(place))

    def ls(self, path: str, detail: bool = True, **options: Any) -> list[Any]:
        name = self._strip_protocol(path)
        with self._files(name) as (files, place):
            if files is None:
                found = [_directory(route) for route in self._sandboxes()]
            elif place == "/":
                found = [_directory(f"{name}/{root}") for root in _ROOTS]
            elif place.strip("/") not in _ROOTS and (entry := files.stat(place)).type != "directory":
                found = [_info(name, entry)]
            else:
                found = [_info(f"{name}/{entry.name}", entry) for entry in files.iterate(place)]
        return found if detail else [entry["name"] for entry in found]

    def created(self, path: str) -> datetime:
        raise NotImplementedError("a sandbox does not keep when a file was made")

    def modified(self, path: str) -> datetime:
        found = self.info(path).get("mtime")
        if not isinstance(found, datetime):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return found

    def mkdir(self, path: str, create_parents: bool = True, **options: Any) -> None:
        if self.exists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        with self._files(path) as (files, place):
            _in_sandbox(files, path).mkdir(place, parents=create_parents)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        if exist_ok and self.isdir(path):
            return
        self.mkdir(path)

    def rmdir(self, path: str) -> None:
        if not self.isdir(path):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        self.rm_file(path)

    def rm_file(self, path: str) -> None:
        with self._files(path) as (files, place):
            _in_sandbox(files, path).delete(place)

    def rm(self, path: str | list[str], recursive: bool = False, maxdepth: int | None = None) -> None:
        if maxdepth is not None:
            super().rm(path, recursive=recursive, maxdepth=maxdepth)
            return
        for each in path if isinstance(path, list) else [path]:
            for found in self.glob(each) if "*" in each else [each]:
                with self._files(found) as (files, place):
                    _in_sandbox(files, found).delete(place, recursive=recursive)

    def mv(self, path1: str, path2: str, **options: Any) -> None:
        """A rename within a sandbox, with the target replaced; between two of them a copy."""
        source, target = self._strip_protocol(path1), self._strip_protocol(path2)
        if source.partition("/")[0] != target.partition("/")[0]:
            super().mv(source, target, **options)
            return
        with self._files(target) as (files, place):
            _in_sandbox(files, target).move(f"/{source.partition('/')[2]}", place, overwrite=True)

    def cp_file(self, path1: str, path2: str, **options: Any) -> None:
        try:
            source = self._open(path1)
        except IsADirectoryError:
            self.makedirs(path2, exist_ok=True)
            return
        with source, self.open(path2, "wb") as target:
            shutil.copyfileobj(source, target)

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **options: Any) -> None:
        with self.open(path, "xb" if mode == "create" else "wb") as target:
            target.write(value)

    def get_file(self, rpath: str, lpath: Any, callback: Any = None, outfile: Any = None, **options: Any) -> None:
        if outfile is not None:
            with self._open(rpath) as source:
                shutil.copyfileobj(source, outfile)
            return
        os.makedirs(os.path.dirname(os.path.abspath(lpath)), exist_ok=True)
        try:
            with self._files(rpath) as (files, place):
                _in_sandbox(files, rpath).download(place, lpath)
        except IsADirectoryError:
            os.makedirs(lpath, exist_ok=True)

    def put_file(self, lpath: Any, rpath: str, callback: Any = None, mode: str = "overwrite", **options: Any) -> None:
        if os.path.isdir(lpath):
            self.makedirs(rpath, exist_ok=True)
            return
        with open(lpath, "rb") as source, self.open(rpath, "xb" if mode == "create" else "wb") as target:
            shutil.copyfileobj(source, target)

    def upload_stream(self, path: str, content: BinaryIO) -> None:
        """Stream a local file into a sandbox, and make the directories above it when ``auto_mkdir``."""
        with self._files(path) as (files, place):
            target = _in_sandbox(files, path)
            try:
                target.upload(content, place)
            except FileMissing:
                if not self.auto_mkdir:
                    raise
                target.mkdir(posixpath.dirname(place), parents=True)
                content.seek(0)
                target.upload(content, place)

    def _open(
        self, path: str, mode: str = "rb", block_size: Any = None, autocommit: bool = True, **options: Any
    ) -> BinaryIO | Draft:
        name = self._strip_protocol(path)
        if mode not in ("rb", "wb", "xb", "ab"):
            raise ValueError(f"a file is opened with rb, wb, xb or ab, and not with {mode}")
        if mode == "rb":
            return self._fetched(name)
        exists = mode in ("xb", "ab") and self.exists(name)
        if mode == "xb" and exists:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        draft = Draft(self, name, autocommit)
        if mode == "ab" and exists:
            with self._fetched(name) as before:
                shutil.copyfileobj(before, draft)
        return draft

    def _fetched(self, name: str) -> BinaryIO:
        """A local copy, which has no name and goes when it is closed."""
        with tempfile.TemporaryDirectory() as directory, self._files(name) as (files, place):
            local = os.path.join(directory, "content")
            _in_sandbox(files, name).download(place, local)
            return open(local, "rb")

    def _sandboxes(self) -> Iterator[str]:
        offset = 0
        while page := self._client.sandboxes(offset=offset):
            yield from (route.sandbox_id for route in page if route.status not in ("RELEASING", "RELEASED"))
            offset += len(page)

    @contextmanager
    def _files(self, path: str) -> Iterator[tuple[Files | None, str]]:
        """The files of the sandbox that a path leads into, and the path there; none for the list of sandboxes.

        Inside, errors of the service become those of Python.
        """
        sandbox_id, _, rest = self._strip_protocol(path).partition("/")
        try:
            if not sandbox_id:
                yield None, "/"
                return
            if sandbox_id not in self._boxes:
                box = self._client.attach(sandbox_id)
                box.connect()
                self._boxes[sandbox_id] = box
            yield self._boxes[sandbox_id].files, f"/{rest}"
        except FileKindUnsupported as error:
            code = errno.EISDIR if self._is_directory(sandbox_id, f"/{rest}") else errno.ENOTDIR
            raise OSError(code, str(error), path) from error
        except SandloomError as error:
            if isinstance(error, StaleRoute | StaleGeneration | SandboxNotFound):
                self._boxes.pop(sandbox_id, None)
            number = _ERRNO.get(type(error))
            if number is None:
                raise
            raise OSError(number, str(error), path) from error

    def _is_directory(self, sandbox_id: str, place: str) -> bool:
        try:
            return self._boxes[sandbox_id].files.stat(place).type == "directory"
        except SandloomError:
            return False


class Draft(io.BufferedRandom):
    """A local file without a name, sent when it is closed, or, in a transaction, when that is over."""

    def __init__(self, system: SandloomFileSystem, path: str, autocommit: bool) -> None:
        super().__init__(tempfile.TemporaryFile(buffering=0))  # noqa: SIM115
        self._system, self.path, self._autocommit = system, path, autocommit
        self._kept: BinaryIO | None = None

    def close(self) -> None:
        if self.closed:
            return
        try:
            self.flush()
            self._kept = os.fdopen(os.dup(self.fileno()), "rb")
            if self._autocommit:
                self.commit()
        finally:
            super().close()

    def commit(self) -> None:
        """Send what was written."""
        if self._kept is not None:
            with self._kept as content:
                content.seek(0)
                self._system.upload_stream(self.path, content)

    def discard(self) -> None:
        """Forget what was written."""
        if self._kept is not None:
            self._kept.close()


def _directory(name: str) -> dict[str, Any]:
    return {"name": name, "size": 0, "type": "directory"}


def _info(name: str, entry: FileEntry) -> dict[str, Any]:
    kind = {"file": "file", "directory": "directory", "symlink": "link"}.get(entry.type, "other")
    return {
        "name": name,
        "size": entry.size_bytes if kind == "file" else 0,
        "type": kind,
        "mtime": datetime.fromisoformat(entry.modified_at),
        "mode": int(entry.mode, 8),
    }


def _in_sandbox(files: Files | None, path: str) -> Files:
    if files is None:
        raise PermissionError(errno.EACCES, "sandboxes are made and released by the service", path)
    return files
