"""Directories of this machine as tar archives, and back; what comes from a sandbox is not trusted."""

from __future__ import annotations

import os
import re
import shutil
import stat
import tarfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple, cast

from sandloom.sdk.local_files import draft_of

_CHUNK_BYTES = 256 * 1024
_BLOCK_BYTES = 512
_LEFT_OUT = re.compile(rb"sandloom: skipped=(\d{1,18})\n\0")


class Unpacked(NamedTuple):
    """``skipped``: links that lead out of the tree, and entries that are no file, directory or link."""

    files: int
    size_bytes: int
    skipped: int


def pack(directory: Path) -> Iterator[bytes]:
    """The tar archive of what the directory holds; links are stored, sockets, FIFOs and devices left out."""
    for name, path in _walk(directory, ""):
        found = path.lstat()
        info = tarfile.TarInfo(name)
        info.mode, info.mtime = stat.S_IMODE(found.st_mode) & 0o777, int(found.st_mtime)
        if stat.S_ISREG(found.st_mode):
            with path.open("rb") as file:
                info.size = os.fstat(file.fileno()).st_size
                yield _header(info)
                yield from _content(file, info.size)
        elif stat.S_ISDIR(found.st_mode):
            info.type = tarfile.DIRTYPE
            yield _header(info)
        elif stat.S_ISLNK(found.st_mode):
            info.type, info.linkname = tarfile.SYMTYPE, os.readlink(path)
            yield _header(info)
    yield bytes(2 * _BLOCK_BYTES)


def unpack(pieces: Iterator[bytes], target: Path) -> Unpacked:
    """Extracts an archive into ``target``, which must not exist: it appears when all has arrived.

    Links are made last and only where they stay inside, so nothing is written or read through one.
    Raises FileExistsError, FileNotFoundError without a directory for it, and tarfile.TarError for an archive that is
    damaged or leads elsewhere.
    """
    if os.path.lexists(target):
        raise FileExistsError(f"{target} exists already")
    draft = draft_of(target)
    draft.mkdir(0o700)
    try:
        reader = _Reader(pieces)
        with tarfile.open(fileobj=cast(IO[bytes], reader), mode="r|") as archive:
            done = _extract(archive, draft)
        done = done._replace(skipped=done.skipped + reader.left_out())
        draft.chmod(0o755)
        draft.rename(target)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    return done


def _walk(directory: Path, above: str) -> Iterator[tuple[str, Path]]:
    for entry in sorted(os.scandir(directory), key=lambda entry: entry.name):
        name = f"{above}{entry.name}"
        yield name, Path(entry.path)
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(Path(entry.path), f"{name}/")


def _header(info: tarfile.TarInfo) -> bytes:
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")


def _content(file: IO[bytes], size_bytes: int) -> Iterator[bytes]:
    left = size_bytes
    while left > 0:
        piece = file.read(min(_CHUNK_BYTES, left)) or bytes(min(_CHUNK_BYTES, left))
        left -= len(piece)
        yield piece
    yield bytes(-size_bytes % _BLOCK_BYTES)


def _extract(archive: tarfile.TarFile, draft: Path) -> Unpacked:
    files = size_bytes = skipped = 0
    links: list[tuple[Path, str]] = []
    for info in archive:
        place = draft / _inner(info.name)
        if info.isdir():
            place.mkdir(0o755, parents=True, exist_ok=True)
        elif info.isreg():
            place.parent.mkdir(0o755, parents=True, exist_ok=True)
            with open(os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, info.mode & 0o777 | 0o600), "wb") as file:
                shutil.copyfileobj(cast(IO[bytes], archive.extractfile(info)), file, _CHUNK_BYTES)
            os.utime(place, (info.mtime, info.mtime))
            files, size_bytes = files + 1, size_bytes + info.size
        elif info.issym() and _stays_inside(info.name, info.linkname):
            links.append((place, info.linkname))
        else:
            skipped += 1
    for place, text in links:
        expected = os.path.join(os.path.realpath(draft), place.parent.relative_to(draft))
        if os.path.realpath(place.parent) != os.path.normpath(expected):
            raise tarfile.ExtractError(f"the archive has an entry below a link: {place.relative_to(draft)}")
        place.parent.mkdir(0o755, parents=True, exist_ok=True)
        place.symlink_to(text)
    return Unpacked(files, size_bytes, skipped)


def _inner(name: str) -> str:
    if name.startswith("/") or ".." in name.split("/"):
        raise tarfile.ExtractError(f"the archive has a path that leads elsewhere: {name[:200]!r}")
    return name


def _stays_inside(name: str, target: str) -> bool:
    if target.startswith("/"):
        return False
    depth = len(PurePosixPath(name).parts) - 1
    for part in PurePosixPath(target).parts:
        depth += -1 if part == ".." else 1
        if depth < 0:
            return False
    return True


class _Reader:
    """What ``tarfile`` needs of a stream."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = b""
        self._tail = b""

    def left_out(self) -> int:
        """What the service could not put into the archive, by the block of text behind its end."""
        while self.read(_CHUNK_BYTES):
            pass
        found = _LEFT_OUT.match(self._tail)
        return int(found[1]) if found else 0

    def read(self, size: int) -> bytes:
        parts, wanted = [], size
        while wanted > 0:
            piece = self._rest
            if not piece:
                piece = next(self._pieces, b"")
                self._tail = (self._tail + piece)[-_BLOCK_BYTES:]
            if not piece:
                break
            self._rest = piece[wanted:]
            parts.append(piece[:wanted])
            wanted -= len(parts[-1])
        return b"".join(parts)
