"""A file system of a test's own on which files can share blocks."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.services.account import passable_directory, remove_tree
from tests.services.need import missing

_IMAGE_BYTES = 512 << 20
_MAKERS = (["mkfs.xfs", "-q", "-f", "-m", "reflink=1"], ["mkfs.btrfs", "-q", "-f"])


@contextmanager
def sharing_file_system() -> Iterator[Path]:
    """An empty directory on it. Skips, by name, what cannot make or mount one."""
    if os.geteuid() != 0:
        missing("a file system with shared blocks: only root can mount one")
    base = passable_directory("sandloom-sharing")
    image, place = base / "image", base / "mount"
    place.mkdir()
    try:
        with image.open("wb") as stream:
            stream.truncate(_IMAGE_BYTES)
        problems = [_mounted(maker, image, place) for maker in _MAKERS]
        if all(problems):
            missing(f"a file system with shared blocks: {'; '.join(problems)}")
        place.chmod(0o711)
        try:
            yield place
        finally:
            subprocess.run(["umount", str(place)], check=True)
    finally:
        remove_tree(base)


def _mounted(maker: list[str], image: Path, place: Path) -> str:
    """Empty once it is mounted, else why not."""
    if os.path.ismount(place):
        return ""
    for command in ([*maker, str(image)], ["mount", "-o", "loop", str(image), str(place)]):
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            return f"no {command[0]}"
        if done.returncode != 0:
            return done.stderr.strip()
    return ""
