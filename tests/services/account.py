"""The unprivileged account that private servers run under, and the directories they live in."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import socket
import tempfile
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Account:
    """``None`` in both fields means: the account this process already has."""

    uid: int | None
    gid: int | None


def server_account(preferred: str) -> Account:
    """``preferred`` or ``nobody`` when this process is root (PostgreSQL refuses root), else the own account."""
    if os.geteuid() != 0:
        return Account(None, None)
    for name in (preferred, "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(entry.pw_uid, entry.pw_gid)
    return Account(65534, 65534)


def make_private(path: Path, account: Account) -> Path:
    """Creates ``path`` as a 0700 directory of ``account``."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    give(path, account)
    return path


def give(path: Path, account: Account) -> None:
    if account.uid is not None and account.gid is not None:
        os.chown(path, account.uid, account.gid)


def passable_directory(prefix: str) -> Path:
    """A new directory below /tmp that any uid may traverse and only the owner may list (0711)."""
    path = Path(tempfile.mkdtemp(prefix=f"{prefix}-", dir="/tmp"))
    path.chmod(0o711)
    return path


def remove_tree(path: Path) -> None:
    """Removes a tree, also below directories that lost their permission bits; fails when something stays."""
    for directory, names, _ in os.walk(path):
        for name in names:
            inner = Path(directory, name)
            if not inner.is_symlink() and inner.stat().st_mode & 0o700 != 0o700:
                inner.chmod(0o700)
    shutil.rmtree(path)


def free_port() -> int:
    """A loopback TCP port that was free a moment ago; callers retry when somebody else was quicker."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def new_password() -> str:
    return secrets.token_hex(16)
