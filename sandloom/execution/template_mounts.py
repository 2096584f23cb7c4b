"""Where templates are mounted: directories below a sandbox's ``/envs`` that the service owns.

``/envs`` then belongs to the service, too, with the sticky bit and open to the sandbox's group: commands make what they
like there, and can neither remove nor replace a mountpoint. Without root everything has one owner; bubblewrap makes the
mountpoints.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections.abc import Collection, Mapping
from pathlib import Path

from sandloom.execution.directories import Directories
from sandloom.execution.durable import read_long, write_small
from sandloom.execution.file_faults import FaultKind, FileFault, translated
from sandloom.execution.openat import DIRECTORY_FLAGS

_FILE = "templates.json"
_SHARED_MODE = 0o1770


def make_mountpoints(directories: Directories, names: Collection[str], gid: int) -> None:
    """Idempotent. Raises FileFault(EXISTS) when the sandbox has something of that name, which stays."""
    top_fd = os.open(directories.envs, os.O_RDONLY | DIRECTORY_FLAGS)
    try:
        for name in sorted(names):
            with translated(f"/envs/{name}"):
                if os.geteuid() == 0:
                    os.fchown(top_fd, 0, gid)
                    os.fchmod(top_fd, _SHARED_MODE)
                _make(top_fd, name)
    finally:
        os.close(top_fd)


def remove_mountpoints(directories: Directories, names: Collection[str]) -> None:
    """Of templates that are mounted no more; nothing runs in the sandbox."""
    top_fd = os.open(directories.envs, os.O_RDONLY | DIRECTORY_FLAGS)
    try:
        for name in names:
            with contextlib.suppress(OSError):
                os.rmdir(name, dir_fd=top_fd)
    finally:
        os.close(top_fd)


def remember(directories: Directories, attached: Mapping[str, str]) -> None:
    """Keep the names and digests beside the sandbox's files, out of its reach."""
    write_small(_path(directories), json.dumps(attached))


def remembered(directories: Directories) -> dict[str, str]:
    text = read_long(_path(directories))
    found: dict[str, str] = json.loads(text) if text else {}
    return found


def _path(directories: Directories) -> Path:
    return Path(directories.envs).with_name(_FILE)


def _make(top_fd: int, name: str) -> None:
    try:
        os.mkdir(name, 0o755, dir_fd=top_fd)
    except FileExistsError:
        found = os.stat(name, dir_fd=top_fd, follow_symlinks=False)
        if stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and os.geteuid() == 0:
            return
        try:
            os.rmdir(name, dir_fd=top_fd)  # an empty directory, such as a mountpoint that was given away
            os.mkdir(name, 0o755, dir_fd=top_fd)
        except OSError:
            detail = f"/envs/{name} exists in the sandbox; move it away, or attach the template under another name"
            raise FileFault(FaultKind.EXISTS, detail) from None
    os.chmod(name, 0o755, dir_fd=top_fd)
