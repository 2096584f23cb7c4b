from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import time
from functools import partial
from pathlib import Path

import pytest

from sandloom.execution.trash import Trash, TrashUnit
from sandloom.execution.workspace import WorkspaceRoot
from tests.unit.execution_files.people import GID, ROOTLESS, UID, fork, in_child

KEY = ("default", "box")


@pytest.fixture
def workspace(root: WorkspaceRoot) -> Path:
    return Path(root.create(KEY, UID, GID).directories.workspace)


def leftovers(root: WorkspaceRoot) -> list[str]:
    return os.listdir(root.path / ".trash")


def make_deep(path: Path, depth: int) -> None:
    """A chain of directories, each with a file; far deeper than any path can name."""
    fd = os.open(path, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=fd)
        os.close(os.open("file", os.O_WRONLY | os.O_CREAT, dir_fd=fd))
        below = os.open("d", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(fd)


def test_a_deep_tree_is_removed_with_few_descriptors(quick_root: WorkspaceRoot) -> None:
    make_deep(Path(quick_root.create(KEY, UID, GID).directories.workspace), 3000)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 80, hard))
    try:
        assert quick_root.delete(KEY)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert leftovers(quick_root) == []


def test_a_wide_tree_of_every_kind_is_removed(root: WorkspaceRoot, workspace: Path) -> None:
    outside = root.path.parent / "outside"
    outside.mkdir()
    (outside / "kept").write_text("x")
    for number in range(300):
        (workspace / f"d{number}" / "e").mkdir(parents=True)
        (workspace / f"d{number}" / "f").write_text("")
    (workspace / "link").symlink_to(outside)
    (workspace / "d1" / "dangling").symlink_to("nowhere")
    os.mkfifo(workspace / "fifo")
    os.link(outside / "kept", workspace / "hard")
    (workspace / os.fsdecode(b"\xff\xfe")).write_text("")
    assert root.delete(KEY)
    assert leftovers(root) == []
    assert (outside / "kept").read_text() == "x"


@pytest.mark.parametrize("mode", [0o000, 0o111, 0o444, 0o555])
def test_modes_do_not_hold_it_up(root: WorkspaceRoot, workspace: Path, mode: int) -> None:
    inner = workspace
    for _ in range(40):
        inner = inner / "d"
        inner.mkdir()
        (inner / "file").write_text("")
    for directory in [inner, *inner.parents]:
        if workspace in directory.parents:
            directory.chmod(mode)
    workspace.chmod(mode)
    assert root.delete(KEY)
    assert leftovers(root) == []


def test_modes_do_not_hold_up_a_worker_that_is_not_root(data_dir: Path) -> None:
    def run() -> None:
        root = WorkspaceRoot.open(data_dir / "own", rootless=True)
        workspace = Path(root.create(KEY, os.geteuid(), os.getegid()).directories.workspace)
        inner = workspace
        for _ in range(40):
            inner = inner / "d"
            inner.mkdir()
            (inner / "file").write_text("")
        for directory in [inner, *inner.parents][:41]:
            directory.chmod(0o444 if directory == inner else 0o555)
        assert root.delete(KEY)
        assert leftovers(root) == []
        assert os.stat(root.path).st_mode & 0o777 == 0o700

    data_dir.chmod(0o777)
    try:
        assert in_child(run, None if ROOTLESS else UID)
    finally:
        data_dir.chmod(0o711)


def test_what_a_killed_delete_left_is_removed_at_the_next_start(root: WorkspaceRoot) -> None:
    for number in range(4):
        key = ("default", f"box-{number}")
        workspace = Path(root.create(key, UID, GID).directories.workspace)
        for name in range(100):
            (workspace / f"d{name}").mkdir()
            (workspace / f"d{name}" / "file").write_text("")
        here, there = socket.socketpair()
        pid = fork(partial(_delete_aloud, root, key, there))
        there.close()
        for _ in range(1 + number * 20):
            here.sendall(here.recv(1))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        here.close()
    assert len(leftovers(root)) > 0
    assert list(root.keys()) == []
    again = WorkspaceRoot.open(root.path, rootless=ROOTLESS)
    assert again.empty_trash()
    assert leftovers(root) == []


def _delete_aloud(root: WorkspaceRoot, key: tuple[str, str], peer: socket.socket) -> None:
    """Deletes, and for every entry that is removed says a byte before and waits for it to come back."""
    drop = TrashUnit._drop

    def aloud(unit: TrashUnit, parent_fd: int, name: str) -> bool:
        peer.sendall(b".")
        peer.recv(1)
        return drop(unit, parent_fd, name)

    TrashUnit._drop = aloud  # type: ignore[method-assign, assignment]
    root.delete(key)


def test_a_unit_in_use_is_left_alone(root: WorkspaceRoot) -> None:
    with root.trash.unit() as unit:
        os.mkdir("building", dir_fd=unit.fd)
        assert not Trash(str(root.path / ".trash")).empty()
        assert os.listdir(unit.fd) == ["building"]
    assert root.empty_trash()
    assert leftovers(root) == []


def test_a_deadline_leaves_the_rest_for_later(root: WorkspaceRoot, workspace: Path) -> None:
    make_deep(workspace, 200)
    with root.trash.unit() as unit:
        parent_fd = os.open(workspace.parent, os.O_RDONLY)
        unit.take(parent_fd, b"workspace")
        os.close(parent_fd)
        assert not unit.remove(deadline=time.monotonic() - 1)
    assert not root.empty_trash(seconds=-1)
    assert len(leftovers(root)) == 1
    assert root.empty_trash()
    assert leftovers(root) == []


def test_a_removal_that_cannot_go_on_says_why(root: WorkspaceRoot, workspace: Path) -> None:
    (workspace / "file").write_text("")
    if ROOTLESS:
        pytest.skip("needs root to make a file immutable")
    if subprocess.run(["chattr", "+i", workspace / "file"], check=False).returncode:
        pytest.skip("this file system has no immutable files")
    unit_path = root.path / ".trash"
    try:
        with pytest.raises(Exception, match="not permitted"):
            root.delete(KEY)
        assert not root.exists(KEY)
    finally:
        subprocess.run(["chattr", "-R", "-i", unit_path], check=True)
    assert root.empty_trash()
