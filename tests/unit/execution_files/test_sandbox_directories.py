from __future__ import annotations

import os
import signal
import stat
from pathlib import Path

import pytest

from sandloom.execution.workspace import WorkspaceRoot
from tests.unit.execution_files.people import GID, OTHER_GID, OTHER_UID, ROOTLESS, UID, fork, in_child

KEY = ("default", "box")
ODD_IDS = ["...", "-rf", "a:b", "ABC", "abc", ".trash", "s-s", "x" * 128, "__.__", "%2e"]


def owner(path: str | Path) -> tuple[int, int]:
    found = os.lstat(path)
    return found.st_uid, found.st_gid


def test_a_directory_is_new_once_and_kept_afterwards(root: WorkspaceRoot) -> None:
    first = root.create(KEY, UID, GID)
    Path(first.directories.workspace, "data").write_text("mine")
    second = root.create(KEY, UID, GID)
    assert (first.kept, second.kept) == (False, True)
    assert second.directories == first.directories == root.directories(KEY)
    assert Path(second.directories.workspace, "data").read_text() == "mine"


def test_odd_ids_each_have_their_own_place(root: WorkspaceRoot) -> None:
    keys = [(tenant, name) for tenant in ("default", "Default", "..", "a/b") for name in ODD_IDS]
    for tenant, name in keys:
        made = root.create((tenant, name), UID, GID)
        assert not made.kept
        Path(made.directories.home, "who").write_text(f"{tenant} {name}")
    assert set(root.keys()) == set(keys)
    for tenant, name in keys:
        assert Path(root.directories((tenant, name)).home, "who").read_text() == f"{tenant} {name}"
        assert root.delete((tenant, name))
    assert list(root.keys()) == []
    assert os.listdir(root.path / "sandboxes") == []


def test_deleting_again_finds_nothing(root: WorkspaceRoot) -> None:
    root.create(KEY, UID, GID)
    assert root.exists(KEY)
    assert root.delete(KEY)
    assert not root.exists(KEY)
    assert not root.delete(KEY)
    assert not root.create(KEY, UID, GID).kept


def test_entries_that_are_not_ours_are_not_keys(root: WorkspaceRoot) -> None:
    root.create(KEY, UID, GID)
    (root.path / "sandboxes" / "lost+found").mkdir()
    (root.path / "sandboxes" / "t-default" / "notes").mkdir()
    (root.path / "sandboxes" / "t-file").write_text("")
    assert list(root.keys()) == [KEY]


@pytest.mark.root
def test_modes_and_owners(root: WorkspaceRoot) -> None:
    made = root.create(KEY, UID, GID).directories
    for path in (made.workspace, made.home, made.envs, made.cache):
        assert owner(path) == (UID, GID)
        assert stat.S_IMODE(os.lstat(path).st_mode) == 0o700
    top = Path(made.workspace).parent
    assert owner(top) == (0, GID)
    assert stat.S_IMODE(top.stat().st_mode) == 0o710


@pytest.mark.root
def test_the_sandbox_user_can_use_but_not_replace_its_directories(root: WorkspaceRoot) -> None:
    made = root.create(KEY, UID, GID).directories
    top = os.path.dirname(made.workspace)
    assert in_child(lambda: Path(made.workspace, "a").write_text("x"), UID)
    assert not in_child(lambda: os.rename(made.workspace, f"{top}/gone"), UID)
    assert not in_child(lambda: os.mkdir(f"{top}/more"), UID)
    assert not in_child(lambda: os.listdir(top), UID)
    assert not in_child(lambda: os.listdir(root.path / "sandboxes"), UID)


@pytest.mark.root
def test_another_user_cannot_enter(root: WorkspaceRoot) -> None:
    made = root.create(KEY, UID, GID).directories
    Path(made.workspace).chmod(0o777)
    assert not in_child(lambda: os.stat(made.workspace), OTHER_UID)
    assert not in_child(lambda: os.stat(f"{made.workspace}/x"), OTHER_UID)


def test_directories_that_the_sandbox_closed_are_opened_again(root: WorkspaceRoot) -> None:
    made = root.create(KEY, UID, GID).directories
    os.chmod(made.workspace, 0)
    root.create(KEY, UID, GID)
    assert stat.S_IMODE(os.lstat(made.workspace).st_mode) == 0o700


@pytest.mark.root
def test_a_new_user_is_given_the_whole_tree(root: WorkspaceRoot, data_dir: Path) -> None:
    made = root.create(KEY, UID, GID).directories
    outside = data_dir / "outside"
    outside.write_text("root's")
    inner = Path(made.workspace, "a", "b")
    inner.mkdir(parents=True)
    (inner / "file").write_text("x")
    (inner / "link").symlink_to(outside)
    inner.chmod(0o500)
    deep = _deep_tree(made.home, 1500)
    again = root.create(KEY, OTHER_UID, OTHER_GID)
    assert again.kept
    every = [Path(made.workspace), *Path(made.workspace).rglob("*")]
    assert {owner(path) for path in every} == {(OTHER_UID, OTHER_GID)}
    assert owner(outside) == (0, 0)
    assert stat.S_IMODE(inner.stat().st_mode) == 0o500
    assert _owner_at_depth(made.home, deep) == (OTHER_UID, OTHER_GID)
    assert not in_child(lambda: os.stat(made.workspace), UID)
    assert in_child(lambda: (inner / "file").read_text(), OTHER_UID)


def test_a_worker_that_is_not_root_owns_everything_whatever_uid_is_asked_for(data_dir: Path) -> None:
    def run() -> None:
        root = WorkspaceRoot.open(data_dir / "own", rootless=True)
        assert [root.create(KEY, 54321, 54321).kept for _ in range(2)] == [False, True]
        assert owner(root.directories(KEY).workspace) == (os.geteuid(), os.getegid())
        assert stat.S_IMODE(os.stat(root.directories(KEY).workspace).st_mode) == 0o700

    data_dir.chmod(0o777)
    try:
        assert in_child(run, None if ROOTLESS else UID)
    finally:
        data_dir.chmod(0o711)


@pytest.mark.root
def test_giving_away_that_was_interrupted_is_done_again(root: WorkspaceRoot) -> None:
    made = root.create(KEY, UID, GID).directories
    leaf = Path(made.workspace, "leaf")
    leaf.write_text("")
    os.chown(leaf, UID, GID)
    os.chmod(os.path.dirname(made.workspace), 0o700)
    for path in (made.workspace, made.home, made.envs, made.cache):
        os.chown(path, OTHER_UID, OTHER_GID)
    root.create(KEY, OTHER_UID, OTHER_GID)
    assert owner(leaf) == (OTHER_UID, OTHER_GID)
    assert owner(os.path.dirname(made.workspace)) == (0, OTHER_GID)


def test_a_kill_while_creating_leaves_a_whole_directory_or_none(root: WorkspaceRoot) -> None:
    for round_number in range(12):
        heard, said = os.pipe()

        def create_many(said: int = said, round_number: int = round_number) -> None:
            for number in range(1000):
                os.write(said, b".")
                root.create(("default", f"box-{round_number}-{number}"), UID, GID)

        pid = fork(create_many)
        os.close(said)
        for _ in range(1 + round_number % 4):
            os.read(heard, 1)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(heard)
    assert root.empty_trash()
    assert os.listdir(root.path / ".trash") == []
    for key in list(root.keys()):
        made = root.directories(key)
        assert {owner(path) for path in (made.workspace, made.home, made.envs, made.cache)} == {(UID, GID)}
        assert root.create(key, UID, GID).kept


def _deep_tree(path: str, depth: int) -> int:
    fd = os.open(path, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=fd)
        below = os.open("d", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(fd)
    return depth


def _owner_at_depth(path: str, depth: int) -> tuple[int, int]:
    fd = os.open(path, os.O_RDONLY)
    for _ in range(depth):
        below = os.open("d", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    found = os.fstat(fd)
    os.close(fd)
    return found.st_uid, found.st_gid
