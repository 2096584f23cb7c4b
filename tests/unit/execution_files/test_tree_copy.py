"""Copies of trees: what is the same, what is left out, and what a hostile tree gets out of it.

``SANDBOX_TEST_SWAP_SECONDS`` makes the race take so long.
"""

from __future__ import annotations

import os
import stat
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandloom.execution.file_faults import FaultKind, FileFault
from sandloom.execution.openat import SCAN_FLAGS
from sandloom.execution.tree_copy import TreeCopy
from sandloom.execution.tree_walk import TreeBounds
from tests.services.reflink import sharing_file_system
from tests.unit.execution_files.people import UID, kind_of, program, tree_of
from tests.unit.execution_files.test_swaps import SECONDS, SWAPPER

MIB = 1 << 20
OWNER = os.geteuid()
WIDE = TreeBounds(max_entries=100_000, max_depth=128, seconds=60)


@pytest.fixture(scope="module")
def sharing() -> Iterator[Path]:
    with sharing_file_system() as path:
        yield path


def copy(source: Path, target: Path, tree: TreeCopy | None = None) -> TreeCopy:
    tree = tree or TreeCopy(OWNER, WIDE, 100 * MIB)
    target.mkdir()
    fds = [os.open(path, SCAN_FLAGS) for path in (source, target)]
    try:
        tree.copy(*fds)
    finally:
        for fd in fds:
            os.close(fd)
    return tree


def look(top: Path) -> dict[bytes, tuple[object, ...]]:
    """Kinds, modes, times, targets and contents."""
    found: dict[bytes, tuple[object, ...]] = {}
    for path, directories, names, fd in os.fwalk(os.fsencode(top), follow_symlinks=False):
        for name in (*directories, *names):
            seen = os.stat(name, dir_fd=fd, follow_symlinks=False)
            content: object = None
            if stat.S_ISLNK(seen.st_mode):
                content = os.readlink(name, dir_fd=fd)
            elif stat.S_ISREG(seen.st_mode):
                content = Path(os.fsdecode(path), os.fsdecode(name)).read_bytes()
            key = os.path.relpath(os.path.join(path, name), os.fsencode(top))
            found[key] = (stat.S_IFMT(seen.st_mode), stat.S_IMODE(seen.st_mode), seen.st_mtime_ns, content)
    return found


def plant(top: Path) -> None:
    top.mkdir()
    (top / "d/e").mkdir(parents=True)
    (top / "d/f").write_bytes(os.urandom(3 * MIB + 17))
    (top / "d/f").chmod(0o640)
    (top / "d/e/empty").touch(0o700)
    (top / "d/e/n\udcff\udcfe").write_text("no text as a name")
    (top / "link").symlink_to("/etc/passwd")
    (top / "loop").symlink_to("loop")
    os.utime(top / "d/f", ns=(1, 1_000_000_001))
    os.utime(top / "d/e", ns=(1, 2_000_000_002))
    (top / "d/e").chmod(0o500)


def test_a_copy_has_the_same_content_modes_times_and_links(tmp_path: Path) -> None:
    plant(tmp_path / "source")
    tree = copy(tmp_path / "source", tmp_path / "target")
    assert look(tmp_path / "target") == look(tmp_path / "source")
    assert (tree.entries, tree.skipped, tree.copied_bytes + tree.cloned > 0) == (7, 0, True)
    (tmp_path / "source/d/e").chmod(0o700)
    (tmp_path / "target/d/e").chmod(0o700)


def test_files_share_their_blocks_where_the_file_system_can(sharing: Path) -> None:
    plant(sharing / "source")
    (sharing / "source/large").write_bytes(os.urandom(8 * MIB))
    subprocess.run(["sync", "-f", sharing], check=True)
    before = os.statvfs(sharing)
    tree = copy(sharing / "source", sharing / "target", TreeCopy(OWNER, WIDE, 0))
    subprocess.run(["sync", "-f", sharing], check=True)
    after = os.statvfs(sharing)
    assert look(sharing / "target") == look(sharing / "source")
    assert (tree.cloned, tree.copied_bytes) == (3, 0)
    assert (before.f_bfree - after.f_bfree) * after.f_frsize < 4 * MIB
    (sharing / "source/large").write_bytes(b"changed")
    assert (sharing / "target/large").stat().st_size == 8 * MIB


def test_holes_stay_holes_and_cost_nothing(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    with open(tmp_path / "source/sparse", "wb") as stream:
        stream.write(b"begin")
        stream.seek(1 << 33)
        stream.write(b"middle")
        stream.truncate(1 << 40)
    tree = copy(tmp_path / "source", tmp_path / "target", TreeCopy(OWNER, WIDE, MIB))
    made = tmp_path / "target/sparse"
    assert made.stat().st_size == 1 << 40
    assert made.stat().st_blocks * 512 < MIB
    assert tree.copied_bytes <= MIB
    with open(made, "rb") as stream:
        assert stream.read(5) == b"begin"
        stream.seek(1 << 33)
        assert stream.read(6) == b"middle"


def test_what_is_no_file_is_left_out_and_rights_that_a_mode_gives_are_dropped(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    os.mkfifo(source / "fifo")
    (source / "suid").write_bytes(b"x")
    (source / "suid").chmod(0o6755)
    os.link(source / "suid", source / "second")
    tree = copy(source, tmp_path / "target")
    made = {path.name: path.stat() for path in (tmp_path / "target").iterdir()}
    assert (sorted(made), tree.skipped) == (["second", "suid"], 1)
    assert [stat.S_IMODE(found.st_mode) for found in made.values()] == [0o755, 0o755]
    assert {found.st_nlink for found in made.values()} == {1}


@pytest.mark.root
def test_what_belongs_to_others_is_not_read(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "mount").mkdir(parents=True)
    (source / "mount/secret").write_bytes(b"secret")
    (source / "secret").write_bytes(b"secret")
    os.mknod(source / "device", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    (source / "mine").write_bytes(b"mine")
    os.chown(source / "mine", UID, UID)
    tree = copy(source, tmp_path / "target", TreeCopy(UID, WIDE, MIB))
    assert (tree_of(tmp_path / "target"), tree.skipped) == ({"mine": b"mine"}, 3)


@pytest.mark.parametrize(
    ("bounds", "max_bytes", "kind"),
    [
        (TreeBounds(2, 128, 60), MIB, FaultKind.TOO_LARGE),
        (TreeBounds(100, 1, 60), MIB, FaultKind.TOO_LARGE),
        (TreeBounds(100, 128, 0), MIB, FaultKind.TOO_LARGE),
        (TreeBounds(100, 128, 60), 3, FaultKind.DISK_FULL),
    ],
)
def test_bounds(tmp_path: Path, bounds: TreeBounds, max_bytes: int, kind: FaultKind) -> None:
    (tmp_path / "source/a/b").mkdir(parents=True)
    (tmp_path / "source/a/b/f").write_bytes(b"more than three")
    tree = TreeCopy(OWNER, bounds, max_bytes)
    assert kind_of(lambda: copy(tmp_path / "source", tmp_path / "target", tree)) is kind


@pytest.mark.timeout(SECONDS + 300)
def test_swapping_a_directory_for_a_link_copies_nothing_from_outside(data_dir: Path) -> None:
    """As root over a tree of another user, as in a sandbox; the outside belongs to that user, too: only the walk
    protects it."""
    outside, source = data_dir / "outside", data_dir / "source"
    for path, content in ((outside, b"secret"), (source / "d", b"mine")):
        path.mkdir(parents=True)
        (path / "f").write_bytes(content)
    (source / "link").symlink_to(outside)
    subprocess.run(["chown", "-hR", str(UID), source, outside], check=True)
    until, copies = time.monotonic() + max(SECONDS, 2), 0
    seen: set[str] = set()
    with program(SWAPPER, str(source), uid=UID):
        while time.monotonic() < until or seen != {"copied", "refused"}:
            target = data_dir / f"target{copies}"
            try:
                copy(source, target, TreeCopy(UID, WIDE, MIB))
                seen.add("copied")
            except (FileFault, OSError):
                seen.add("refused")
            copies += 1
            assert set(tree_of(target).values()) <= {b"mine"}
            subprocess.run(["rm", "-rf", target], check=True)
    assert tree_of(outside) == {"f": b"secret"}
