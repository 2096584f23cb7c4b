"""Files and directories into a sandbox and out of it, as ``cp -r`` does it: both ways, modes included."""

from __future__ import annotations

import os
import shlex
import stat
import tarfile
from pathlib import Path, PurePosixPath

import click

from sandloom.cli.invocation import Stop
from sandloom.errors import FileMissing
from sandloom.sdk import Sandbox

_EXECUTABLE = 0o111


def copy_in(box: Sandbox, source: str, path: str) -> None:
    """Into the directory of that path when there is one, else to the path itself. Raises OSError for what is here, and
    FileMissing without a directory to copy to."""
    mode = os.stat(source).st_mode
    target = _inside(box, path, os.path.basename(source.rstrip("/")), stat.S_ISDIR(mode))
    try:
        if stat.S_ISDIR(mode):
            box.files.upload_tree(source, target)
        else:
            box.files.upload(source, target, mode=mode & 0o777 if stat.S_ISREG(mode) else None)
    except FileMissing:
        parent = shlex.quote(str(PurePosixPath(target).parent))
        raise FileMissing(
            f"there is no directory for {target}; make it first: sandloom exec {box.id} mkdir -p {parent}"
        ) from None


def copy_out(box: Sandbox, path: str, destination: str) -> None:
    """Into the local directory of that name when there is one, else to the name itself. A directory is never copied
    over one that exists. Raises Stop and OSError for what is here."""
    found = box.files.stat(path)
    target = Path(destination)
    if target.is_dir():
        target /= PurePosixPath(path).name
    elif destination.endswith("/") and found.type != "directory":
        raise Stop(f"{destination} is not a directory here")
    if found.type != "directory":
        box.files.download(path, target)
        # Whoever may read the file here may execute it, too.
        local = target.stat().st_mode
        target.chmod(stat.S_IMODE(local) | (local & 0o444) >> 2 & int(found.mode, 8) & _EXECUTABLE)
        return
    try:
        skipped = box.files.download_tree(path, target).skipped
    except tarfile.TarError as error:
        raise Stop(f"{path} came as an archive that is not unpacked: {error}", 1) from None
    if skipped:
        click.echo(f"sandloom: {skipped} entries were left out: links that lead elsewhere, sockets and so on", err=True)


def _inside(box: Sandbox, path: str, name: str, tree: bool) -> str:
    """``name``: of what is copied; that of a directory may be ``.``, whose content is meant then."""
    try:
        directory = box.files.stat(path).type == "directory"
    except FileMissing:
        directory = path.endswith("/") and not tree
    plain = path.rstrip("/")
    return f"{plain}/{name}" if directory and name not in ("", ".", "..") else plain
