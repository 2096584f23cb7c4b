"""Creating and checking the directory that holds all workspaces of a worker."""

from __future__ import annotations

import os
import re
import secrets
import stat
from pathlib import Path

from sandloom.execution.durable import create_small, sync_path
from sandloom.execution.spec import ExecutionError

_ROOT_ID = re.compile(r"[0-9a-f]{32}\Z")


class RootUnusable(ExecutionError):
    """The workspace root cannot be used; the message names the directory and what to change."""


def prepare_root(path: Path, *, rootless: bool) -> Path:
    """Creates or checks the root and what it holds; returns it with every link in its parents resolved."""
    if not path.is_absolute() or path.name in ("", ".."):
        raise RootUnusable(f"the workspace root must be an absolute path, not {path}")
    try:
        root = _real(path)
        _make_chain(root)
        check_own(root)
        if not rootless:
            for parent in root.parents:
                _check_parent(parent)
        _set_mode(root, 0o700 if rootless else 0o711)
        for name, mode in ((".sandloom", 0o700), (".trash", 0o700), ("sandboxes", 0o700 if rootless else 0o711)):
            make_own(root / name, mode)
    except OSError as error:
        raise RootUnusable(f"the workspace root {path} cannot be prepared: {error}") from error
    return root


def read_root_id(state: Path) -> str:
    """The id that says whether this is the same disk as before; made when there is none."""
    root_id = create_small(state / "root_id", secrets.token_hex(16))
    if not _ROOT_ID.match(root_id):
        raise RootUnusable(
            f"{state / 'root_id'} is damaged; restore it, or remove it when the workspaces may be given up"
        )
    return root_id


def make_own(path: Path, mode: int) -> None:
    """Creates the directory, or demands that it is a real one of ours; sets its mode."""
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        pass
    else:
        sync_path(path.parent)
    check_own(path)
    _set_mode(path, mode)


def check_own(path: Path) -> None:
    """Raises RootUnusable unless ``path`` is a directory, no link, and ours."""
    found = os.lstat(path)
    if stat.S_ISLNK(found.st_mode):
        raise RootUnusable(f"{path} is a symbolic link; name the directory itself")
    if not stat.S_ISDIR(found.st_mode):
        raise RootUnusable(f"{path} is not a directory")
    if found.st_uid != os.geteuid():
        raise RootUnusable(f"{path} belongs to uid {found.st_uid}, not to the worker's uid {os.geteuid()}; chown it")


def _real(path: Path) -> Path:
    # Links in parents are resolved once, here; the last component may not be one.
    return Path(os.path.realpath(path.parent), path.name)


def _make_chain(root: Path) -> None:
    missing = [directory for directory in (root, *root.parents) if not os.path.lexists(directory)]
    for directory in reversed(missing):
        os.mkdir(directory, 0o700)
        _set_mode(directory, 0o711)
        sync_path(directory.parent)


def _check_parent(parent: Path) -> None:
    mode = os.stat(parent).st_mode
    if not mode & stat.S_IXOTH:
        raise RootUnusable(
            f"{parent} is closed to the sandboxes' users (mode {stat.S_IMODE(mode):04o}); "
            f"run 'chmod o+x {parent}' or choose a workspace root elsewhere"
        )
    if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
        raise RootUnusable(
            f"{parent} is writable by everyone without the sticky bit, so anyone could replace the workspace root; "
            f"run 'chmod o-w {parent}' or choose a workspace root elsewhere"
        )


def _set_mode(path: Path, mode: int) -> None:
    if stat.S_IMODE(os.lstat(path).st_mode) != mode:
        os.chmod(path, mode)
