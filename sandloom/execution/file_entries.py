"""How a file looks from outside: what ``lstat`` says, in the words of the contract."""

from __future__ import annotations

import base64
import os
import stat
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

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


@dataclass(frozen=True, slots=True)
class Entry:
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
    return Entry(
        name=path.name.decode("utf-8", "replace"),
        path=path.text,
        type=_TYPES.get(stat.S_IFMT(found.st_mode), "other"),
        size_bytes=found.st_size,
        modified_at=rfc3339(found.st_mtime_ns),
        mode=f"{stat.S_IMODE(found.st_mode):04o}",
        name_base64=exact(path.name),
        path_base64=exact(path.raw),
    )


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
