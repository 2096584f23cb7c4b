"""The directory of one sandbox: names, making, checking, giving to a user.

``<root>/sandboxes/t-<tenant>/s-<sandbox>`` belongs to the worker's user and, by mode 0710, lets only the sandbox's
group through; so the sandbox can neither replace ``workspace home envs cache`` inside nor be entered by another uid.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from urllib.parse import quote, unquote

from sandloom.execution.directories import Directories
from sandloom.execution.openat import DIRECTORY_FLAGS
from sandloom.execution.ownership import give_tree
from sandloom.execution.spec import ExecutionError

MEMBERS = ("workspace", "home", "envs", "cache")
_CLOSED, _OPEN = 0o700, 0o710
_MAX_NAME_BYTES = 255
_PLAIN = "_.:-"  # beside letters and digits


class WorkspaceFault(ExecutionError):
    """A sandbox's directory cannot be made ready; the message is for operators and names host paths."""


def encode_name(prefix: str, value: str) -> str:
    """An injective file name; the prefix keeps names such as ``...`` and ``-rf`` harmless."""
    name = f"{prefix}-{quote(value, safe=_PLAIN)}"
    if len(name) > _MAX_NAME_BYTES:
        raise WorkspaceFault(f"the id is too long for a directory name: {len(name)} bytes")
    return name


def decode_name(prefix: str, name: str) -> str | None:
    """The value of a name that ``encode_name`` made, None for any other name."""
    if not name.startswith(f"{prefix}-"):
        return None
    value = unquote(name[len(prefix) + 1 :])
    return value if f"{prefix}-{quote(value, safe=_PLAIN)}" == name else None


def directories_below(path: str) -> Directories:
    return Directories(*(os.path.join(path, member) for member in MEMBERS))


def build(parent_fd: int, name: str, uid: int, gid: int, fill: Callable[[int], None] | None = None) -> None:
    """Makes a new sandbox directory with its members, empty or with what ``fill`` puts into them.

    It stays closed to everybody else until all of it belongs to ``uid``.
    """
    os.mkdir(name, _CLOSED, dir_fd=parent_fd)
    top_fd = os.open(name, os.O_RDONLY | DIRECTORY_FLAGS, dir_fd=parent_fd)
    try:
        for member in MEMBERS:
            _make_member(top_fd, member, uid, gid)
        if fill is not None:
            fill(top_fd)
            if os.geteuid() == 0:
                for member in MEMBERS:
                    give_tree(top_fd, member, uid, gid)
        _open_to(top_fd, gid)
    finally:
        os.close(top_fd)


def adopt(top_fd: int, uid: int, gid: int) -> None:
    """Makes an existing sandbox directory usable by ``uid``: missing members, lost modes, other owners.

    When it is given to another uid, nothing may run in it. Interrupted, it stays closed and the next call starts over.
    A worker that is not root can give nothing away: all belongs to its own user.
    """
    for member in MEMBERS:
        try:
            found = os.stat(member, dir_fd=top_fd, follow_symlinks=False)
        except FileNotFoundError:
            _make_member(top_fd, member, uid, gid)
            continue
        if not stat.S_ISDIR(found.st_mode):
            raise WorkspaceFault(f"{member} of a sandbox is not a directory any more")
        if found.st_mode & stat.S_IRWXU != stat.S_IRWXU:
            os.chmod(member, stat.S_IMODE(found.st_mode) | stat.S_IRWXU, dir_fd=top_fd)
    if os.geteuid() == 0 and not _belongs_to(top_fd, uid, gid):
        os.fchmod(top_fd, _CLOSED)
        for member in MEMBERS:
            give_tree(top_fd, member, uid, gid)
    _open_to(top_fd, gid)


def _belongs_to(top_fd: int, uid: int, gid: int) -> bool:
    top = os.fstat(top_fd)
    if top.st_gid != gid or stat.S_IMODE(top.st_mode) != _mode():
        return False
    members = [os.stat(member, dir_fd=top_fd, follow_symlinks=False) for member in MEMBERS]
    return all((found.st_uid, found.st_gid) == (uid, gid) for found in members)


def _make_member(top_fd: int, member: str, uid: int, gid: int) -> None:
    os.mkdir(member, 0o700, dir_fd=top_fd)
    os.chmod(member, 0o700, dir_fd=top_fd)
    if os.geteuid() == 0:
        os.chown(member, uid, gid, dir_fd=top_fd, follow_symlinks=False)


def _open_to(top_fd: int, gid: int) -> None:
    if os.geteuid() == 0:
        os.fchown(top_fd, -1, gid)
    if stat.S_IMODE(os.fstat(top_fd).st_mode) != _mode():
        os.fchmod(top_fd, _mode())


def _mode() -> int:
    # Without uid separation the group is the worker's own, which other people may share.
    return _OPEN if os.geteuid() == 0 else _CLOSED
