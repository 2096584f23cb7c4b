from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from sandloom.execution.workspace import RootUnusable, WorkspaceRoot
from tests.unit.execution_files.people import ROOTLESS


def test_the_ids_stay_when_the_root_is_opened_again(data_dir: Path) -> None:
    first = WorkspaceRoot.open(data_dir / "root", rootless=ROOTLESS)
    worker_id = first.worker_id()
    first.record_uid_block(20032)
    second = WorkspaceRoot.open(data_dir / "root", rootless=ROOTLESS)
    assert (second.root_id, second.worker_id(), second.uid_block_start) == (first.root_id, worker_id, 20032)
    assert len(first.root_id) == 32


def test_a_root_that_was_wiped_has_another_id(data_dir: Path, root: WorkspaceRoot) -> None:
    other = WorkspaceRoot.open(data_dir / "other", rootless=ROOTLESS)
    assert other.root_id != root.root_id
    assert other.uid_block_start is None


def test_a_configured_worker_id_is_kept(root: WorkspaceRoot) -> None:
    made = root.worker_id()
    assert root.worker_id("node-1") == "node-1" != made
    assert root.worker_id() == "node-1"


def test_workers_of_a_shared_root_have_states_of_their_own(data_dir: Path) -> None:
    one, two = (
        WorkspaceRoot.open(data_dir / "root", rootless=ROOTLESS, state=data_dir / name) for name in ("one", "two")
    )
    assert one.root_id == two.root_id
    assert one.worker_id() != two.worker_id()
    with one.lock(), two.lock():
        assert (data_dir / "one" / "lock").exists()


def test_what_is_private_is_closed(data_dir: Path, root: WorkspaceRoot) -> None:
    modes = {name: stat.S_IMODE((data_dir / "root" / name).stat().st_mode) for name in (".sandloom", ".trash", ".")}
    assert modes == {".sandloom": 0o700, ".trash": 0o700, ".": 0o700 if ROOTLESS else 0o711}
    assert stat.S_IMODE((data_dir / "root/.sandloom/root_id").stat().st_mode) == 0o600


def test_missing_parents_are_made_traversable(data_dir: Path) -> None:
    root = WorkspaceRoot.open(data_dir / "a" / "b" / "root", rootless=ROOTLESS)
    assert stat.S_IMODE((data_dir / "a").stat().st_mode) == 0o711
    assert root.path == data_dir / "a" / "b" / "root"


def test_a_link_is_refused_as_root_but_resolved_in_a_parent(data_dir: Path) -> None:
    (data_dir / "real").mkdir(mode=0o711)
    (data_dir / "link").symlink_to(data_dir / "real")
    with pytest.raises(RootUnusable, match="symbolic link"):
        WorkspaceRoot.open(data_dir / "link", rootless=ROOTLESS)
    assert WorkspaceRoot.open(data_dir / "link" / "root", rootless=ROOTLESS).path == data_dir / "real" / "root"


@pytest.mark.parametrize("path", ["relative/root", "/", "/tmp/.."])
def test_a_root_needs_a_plain_absolute_path(path: str) -> None:
    with pytest.raises(RootUnusable, match="absolute path"):
        WorkspaceRoot.open(Path(path), rootless=ROOTLESS)


def test_a_file_is_no_root(data_dir: Path) -> None:
    (data_dir / "file").write_text("x")
    with pytest.raises(RootUnusable, match="not a directory"):
        WorkspaceRoot.open(data_dir / "file", rootless=ROOTLESS)


@pytest.mark.root
def test_a_closed_parent_is_named(data_dir: Path) -> None:
    closed = data_dir / "closed"
    closed.mkdir(mode=0o750)
    with pytest.raises(RootUnusable, match=f"^{closed} is closed .*chmod o\\+x {closed}"):
        WorkspaceRoot.open(closed / "a" / "root")


@pytest.mark.root
def test_a_parent_that_anyone_can_change_is_refused(data_dir: Path) -> None:
    loose = data_dir / "loose"
    loose.mkdir()
    loose.chmod(0o777)
    with pytest.raises(RootUnusable, match=f"{loose} is writable by everyone"):
        WorkspaceRoot.open(loose / "root")
    loose.chmod(0o1777)
    WorkspaceRoot.open(loose / "root")


@pytest.mark.root
@pytest.mark.parametrize("name", ["", ".sandloom", ".trash", "sandboxes"])
def test_a_directory_of_someone_else_is_refused(data_dir: Path, root: WorkspaceRoot, name: str) -> None:
    os.chown(root.path / name, 61001, 61001)
    with pytest.raises(RootUnusable, match="belongs to uid 61001"):
        WorkspaceRoot.open(root.path)


def test_a_damaged_root_id_is_not_replaced(data_dir: Path, root: WorkspaceRoot) -> None:
    (root.path / ".sandloom" / "root_id").write_text("")
    with pytest.raises(RootUnusable, match="root_id is damaged"):
        WorkspaceRoot.open(root.path, rootless=ROOTLESS)
    assert (root.path / ".sandloom" / "root_id").read_text() == ""


def test_a_root_that_cannot_be_used_is_one_kind_of_error(data_dir: Path, root: WorkspaceRoot) -> None:
    (root.path / ".sandloom" / "root_id").unlink()
    (root.path / ".sandloom" / "root_id").symlink_to("elsewhere")
    with pytest.raises(RootUnusable, match="cannot be prepared"):
        WorkspaceRoot.open(root.path, rootless=ROOTLESS)
    with pytest.raises(RootUnusable, match="cannot be prepared"):
        WorkspaceRoot.open(data_dir / "other", rootless=ROOTLESS, state=data_dir / "no" / "state")


def test_space_is_that_of_the_file_system(root: WorkspaceRoot) -> None:
    space = root.space()
    assert 0 < space.free_bytes <= space.total_bytes
    assert 0 <= space.free_inodes <= space.total_inodes


def test_small_files_that_a_kill_left_half_written_go_with_the_next_lock(data_dir: Path) -> None:
    root = WorkspaceRoot.open(data_dir / "root", rootless=ROOTLESS)
    root.worker_id("w1")
    state = data_dir / "root/.sandloom"
    before = sorted(path.name for path in state.iterdir())
    (state / ".worker_id.0123456789ab").write_text("w2")
    with root.lock():
        assert sorted(path.name for path in state.iterdir()) == ["lock", *before]
