"""Where the built library is, and whether it may be loaded into a process that is root."""

from __future__ import annotations

import hashlib
import os
import platform
import stat
from pathlib import Path

SOURCE = Path(__file__).with_name("start.c")
#: What answers for /proc/self/exe where there is no /proc; nothing of the worker loads it.
EXE_SOURCE = Path(__file__).with_name("exe.c")
#: Writes trees as archives.
ARCHIVE_SOURCE = SOURCE.with_name("archive.c")
SOURCES = (SOURCE, EXE_SOURCE, ARCHIVE_SOURCE)
_PACKAGE_DIRECTORY = SOURCE.parent / "build"
_LOOSE = stat.S_IWGRP | stat.S_IWOTH


def directories() -> tuple[Path, ...]:
    """Where the library may be, the best place first."""
    cache = Path("/var/cache") if os.geteuid() == 0 else Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache")
    return _PACKAGE_DIRECTORY, cache.expanduser() / "sandloom"


def file_name(source: Path = SOURCE) -> str:
    """Another source or machine has another name, so a library is never older than the code that calls it."""
    digest = hashlib.sha256(source.read_bytes()).hexdigest()[:16]
    return f"{source.stem}-{platform.machine()}-{digest}.so"


def find(source: Path = SOURCE) -> Path | None:
    """The library built from ``source``, if there is one that may be trusted."""
    try:
        candidates = [directory / file_name(source) for directory in directories()]
    except (OSError, RuntimeError):
        # No source, or no home directory.
        return None
    return next((path for path in candidates if trusted(path)), None)


def trusted(path: Path) -> bool:
    """Whether only root or this user can have written ``path``, and the directory that holds it."""
    try:
        return owned(path.lstat(), stat.S_IFREG) and owned(path.parent.lstat(), stat.S_IFDIR)
    except OSError:
        return False


def owned(info: os.stat_result, kind: int) -> bool:
    return stat.S_IFMT(info.st_mode) == kind and info.st_uid in {0, os.geteuid()} and not info.st_mode & _LOOSE
