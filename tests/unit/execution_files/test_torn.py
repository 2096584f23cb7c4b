"""Kills and full disks: a file is the old one or the new one, whole."""

from __future__ import annotations

import ctypes
import errno
import os
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from sandloom.execution import file_writer
from sandloom.execution.file_faults import FaultKind, FileFault
from sandloom.execution.files import SandboxFiles
from sandloom.execution.workspace import WorkspaceRoot
from tests.unit.execution_files.conftest import KEY
from tests.unit.execution_files.people import GID, UID, fork, in_child, kind_of, tree_of

OLD, NEW = b"o" * 300_000, b"n" * 400_000
_CLONE_NEWNS, _MS_REC, _MS_PRIVATE = 0x20000, 0x4000, 1 << 18


@pytest.mark.parametrize(("flag", "leftovers"), [(os.O_TMPFILE, 1), (os.O_DIRECTORY, 20)])
def test_a_kill_leaves_no_torn_file_and_nothing_that_the_sandbox_sees(
    root: WorkspaceRoot,
    files: SandboxFiles,
    workspace: Path,
    monkeypatch: pytest.MonkeyPatch,
    flag: int,
    leftovers: int,
) -> None:
    monkeypatch.setattr(file_writer, "_NAMELESS", flag)
    files.write("/workspace/a", OLD)
    staging = Path(root.directories(KEY).staging)
    for round_number in range(20):
        heard, said = os.pipe()

        def write_on(said: int = said) -> None:
            file_writer.life = "killed"
            while True:
                for data in (NEW, OLD):
                    files.write_stream("/workspace/a", aloud(data, said))

        pid = fork(write_on)
        os.close(said)
        os.read(heard, 1)
        for _ in range(round_number * 3):
            os.read(heard, 1)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(heard)
        assert (workspace / "a").read_bytes() in (OLD, NEW)
    assert os.listdir(workspace) == ["a"]
    assert len(os.listdir(staging)) <= leftovers
    (staging / f".sandloom-{file_writer.life}-of-a-call-that-goes-on.part").touch()
    root.sweep(KEY)
    assert os.listdir(staging) == [f".sandloom-{file_writer.life}-of-a-call-that-goes-on.part"]


def test_a_workspace_on_another_file_system_stages_beside_the_file(
    files: SandboxFiles, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link, refused = os.link, []

    def elsewhere(source: str, name: str, *, dst_dir_fd: int, **options: bool) -> None:
        if not os.path.samestat(os.fstat(dst_dir_fd), workspace.stat()):
            refused.append(name)
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        link(source, name, dst_dir_fd=dst_dir_fd, **options)

    files.write("/workspace/a", OLD)
    monkeypatch.setattr(os, "link", elsewhere)
    files.write("/workspace/a", NEW)
    assert len(refused) == 1
    assert os.listdir(workspace) == ["a"]
    assert (workspace / "a").read_bytes() == NEW


def aloud(data: bytes, said: int) -> Iterator[bytes]:
    """Pieces of the data; says a byte before each."""
    for at in range(0, len(data), 10_000):
        os.write(said, b".")
        yield data[at : at + 10_000]


def on_small_disk(path: Path, options: str) -> None:
    """Only for this process: a private mount."""
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.unshare(_CLONE_NEWNS) == 0, os.strerror(ctypes.get_errno())
    assert libc.mount(None, b"/", None, _MS_REC | _MS_PRIVATE, None) == 0
    assert libc.mount(b"tmpfs", os.fsencode(path), b"tmpfs", 0, options.encode()) == 0


@pytest.mark.root
@pytest.mark.parametrize("flag", [os.O_TMPFILE, os.O_DIRECTORY])
def test_a_full_disk_is_said_and_leaves_the_old_file(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch, flag: int
) -> None:
    monkeypatch.setattr(file_writer, "_NAMELESS", flag)

    def run() -> None:
        on_small_disk(data_dir, "size=2m,mode=711")
        root = WorkspaceRoot.open(data_dir / "root")
        directories = root.create(("default", "box"), UID, GID).directories
        files = SandboxFiles(directories, UID, GID, root.trash)
        files.write("/workspace/a", OLD)
        with pytest.raises(FileFault) as caught:
            files.write("/workspace/a", b"x" * (3 << 20))
        assert caught.value.kind is FaultKind.DISK_FULL
        assert tree_of(Path(directories.workspace)) == {"a": OLD}
        files.delete("/workspace/a")
        files.write("/workspace/b", NEW)

    assert in_child(run)


@pytest.mark.root
def test_running_out_of_inodes_is_said(data_dir: Path) -> None:
    def run() -> None:
        on_small_disk(data_dir, "nr_inodes=60,mode=711")
        root = WorkspaceRoot.open(data_dir / "root")
        files = SandboxFiles(root.create(("default", "box"), UID, GID).directories, UID, GID, root.trash)
        kinds = [kind_of(partial(files.mkdir, f"/workspace/d{number}")) for number in range(100)]
        assert set(kinds) == {None, FaultKind.DISK_FULL}
        assert kind_of(lambda: root.create(("default", "box-2"), UID, GID)) is FaultKind.DISK_FULL
        assert list(root.keys()) == [("default", "box")]
        assert os.listdir(root.path / ".trash") == []
        files.delete("/workspace/d0")
        files.delete("/workspace/d1")
        files.delete("/workspace/d2", recursive=True)
        assert root.delete(("default", "box"))
        assert not root.create(("default", "box-2"), UID, GID).kept

    assert in_child(run)
