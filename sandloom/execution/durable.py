"""Small files of the service itself: written whole or not at all, and safe after a power failure."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import secrets
from pathlib import Path

from sandloom.execution.openat import DIRECTORY_FLAGS

_MAX_SMALL_FILE_BYTES = 4096
_MAX_LONG_FILE_BYTES = 64 * 1024
_libc = ctypes.CDLL(None, use_errno=True)
_STAGED = re.compile(r"\..+\.[0-9a-f]{12}")


def read_long(path: Path) -> str | None:
    """As ``read_small``, up to 64 KiB."""
    return read_small(path, _MAX_LONG_FILE_BYTES)


def read_small(path: Path, max_bytes: int = _MAX_SMALL_FILE_BYTES) -> str | None:
    """The stripped text of the file, None when it is not there. Links are not followed."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        return os.read(fd, max_bytes).decode("utf-8", "replace").strip()
    finally:
        os.close(fd)


def write_small(path: Path, text: str) -> None:
    """Replaces the file (mode 0600)."""
    staged = _stage(path, text)
    os.replace(staged, path)
    sync_path(path.parent)


def create_small(path: Path, text: str) -> str:
    """Creates the file unless it is there; returns the text it holds then. Safe against others doing the same."""
    present = read_small(path)
    if present is not None:
        return present
    staged = _stage(path, text)
    try:
        with contextlib.suppress(FileExistsError):
            os.link(staged, path)
    finally:
        os.unlink(staged)
    sync_path(path.parent)
    return read_small(path) or ""


def remove_staged(directory: Path) -> None:
    """Removes what calls that were killed left there. Nobody else may be writing in the directory."""
    for path in directory.iterdir():
        if _STAGED.fullmatch(path.name):
            path.unlink()


def sync_path(directory: Path | str) -> None:
    fd = os.open(directory, os.O_RDONLY | DIRECTORY_FLAGS)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _stage(path: Path, text: str) -> Path:
    staged = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    fd = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, f"{text}\n".encode())
        os.fsync(fd)
    finally:
        os.close(fd)
    return staged


def sync_file_system(directory_fd: int) -> None:
    """Everything that was written to the file system that holds the directory. Raises OSError."""
    if _libc.syncfs(directory_fd) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
