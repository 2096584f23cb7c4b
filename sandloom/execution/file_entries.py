"""How a file looks from outside: what ``lstat`` says, in the words of the contract."""

from __future__ import annotations

import base64
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from sandloom.execution.paths import SandboxPath

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EARLIEST, _LATEST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
_TYPES = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "directory",
    stat.S_IFLNK: "symlink",
    stat.S_IFIFO: "fifo",
    stat.S_IFSOCK: "socket",
    stat.S_IFCHR: "device",
    stat.S_IFBLK: "device",
}


class Entry(NamedTuple):
    """One file, never of what a link points to.

    ``name`` and ``path`` show bytes that are not UTF-8 as U+FFFD; then ``name_base64`` and ``path_base64`` have the
    exact bytes. ``mode`` is the permission bits as four octal digits, ``modified_at`` RFC 3339 in UTC.
    """

    name: str
    path: str
    type: str
    size_bytes: int
    modified_at: str
    mode: str
    name_base64: str | None = None
    path_base64: str | None = None


def entry_of(path: SandboxPath, found: os.stat_result) -> Entry:
    name = path.name.decode("utf-8", "replace")
    return _entry(name, path.text, found)._replace(name_base64=exact(path.name), path_base64=exact(path.raw))


def entries_in(directory: SandboxPath) -> Callable[[bytes, os.stat_result], Entry]:
    """``entry_of`` for names in the directory, with less work for each."""
    above = f"{directory.text}/" if exact(directory.raw) is None else None

    def entry(name: bytes, found: os.stat_result) -> Entry:
        if above is not None:
            with suppress(UnicodeDecodeError):
                text = name.decode()
                return _entry(text, above + text, found)
        return entry_of(directory.child(name), found)

    return entry


def _entry(name: str, path: str, found: os.stat_result) -> Entry:
    mode = found.st_mode
    kind = _TYPES.get(stat.S_IFMT(mode), "other")
    return Entry(name, path, kind, found.st_size, rfc3339(found.st_mtime_ns), f"{mode & 0o7777:04o}")


def rfc3339(time_ns: int) -> str:
    """Microseconds, UTC. File systems keep times that no calendar has; those become the nearest one that it has."""
    try:
        moment = _EPOCH + timedelta(microseconds=time_ns // 1000)
    except OverflowError:
        moment = _LATEST if time_ns > 0 else _EARLIEST
    return moment.isoformat(timespec="microseconds")


def exact(name: bytes) -> str | None:
    """Base64 of bytes that no text can show."""
    try:
        name.decode()
    except UnicodeDecodeError:
        return base64.b64encode(name).decode()
    return None
