"""What commands may plant in their directories while the service works there."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import stat
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from sandloom.execution import openat
from sandloom.execution.file_faults import FaultKind, FileFault
from sandloom.execution.files import SandboxFiles
from sandloom.execution.workspace import WorkspaceRoot
from tests.unit.execution_files.archives import archive
from tests.unit.execution_files.people import UID, kind_of, program, tree_of
from workers.patterns import line_search


@pytest.fixture(params=["openat2", "walk"], autouse=True)
def walking(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything here holds with the kernel's walk and with the own one of older kernels."""
    if request.param == "openat2" and not openat.HAVE_OPENAT2:
        pytest.skip("this kernel has no openat2")
    monkeypatch.setattr(openat, "HAVE_OPENAT2", request.param == "openat2")


@pytest.fixture
def outside(data_dir: Path) -> Path:
    """A directory that every user may read and write: only the walk protects it."""
    path = data_dir / "outside"
    path.mkdir()
    path.chmod(0o777)
    (path / "sub").mkdir()
    (path / "sub").chmod(0o777)
    for name in ("f", "sub/f"):
        (path / name).write_text("secret")
        (path / name).chmod(0o666)
    return path


SECRETS = {"f": b"secret", "sub/f": b"secret"}


def every_call(files: SandboxFiles, path: str) -> list[Callable[[], object]]:
    return [
        lambda: files.read(path),
        lambda: files.open_read(path).close(),
        lambda: files.write(f"{path}/g", b"x"),
        lambda: files.listing(path, 10),
        lambda: files.mkdir(f"{path}/g"),
        lambda: files.mkdir(f"{path}/g/h", parents=True),
        lambda: files.read(f"{path}/f"),
        lambda: files.stat(f"{path}/f"),
        lambda: files.delete(f"{path}/f"),
        lambda: files.move(f"{path}/f", "/workspace/stolen"),
        lambda: files.move("/workspace/mine", f"{path}/stolen"),
        lambda: files.replace(f"{path}/f", b"s", b"x"),
        lambda: files.trees.open_archive(path).close(),
        lambda: files.trees.extract(path, [archive([("g", b"x")])]),
        lambda: files.trees.glob(path, "*", 10),
        lambda: files.trees.grep(path, line_search("s"), None, 10),
    ]


@pytest.mark.parametrize("below", ["", "/sub"])
@pytest.mark.parametrize("target", ["{outside}", "../../../../outside", "/proc/self/root/{outside}", "inner", "link"])
def test_no_call_goes_through_a_link(
    files: SandboxFiles, workspace: Path, outside: Path, target: str, below: str
) -> None:
    (workspace / "mine").write_text("mine")
    (workspace / "inner" / "sub").mkdir(parents=True)
    for name in ("inner/f", "inner/sub/f"):
        (workspace / name).write_text("inner")
    (workspace / "link").symlink_to(target.format(outside=outside))
    for call in every_call(files, f"/workspace/link{below}"):
        with pytest.raises(FileFault) as caught:
            call()
        assert caught.value.kind is FaultKind.WRONG_KIND, caught.value
    assert tree_of(outside) == SECRETS
    assert sorted(os.listdir(workspace)) == ["inner", "link", "mine"]
    assert files.stat("/workspace/link").type == "symlink"
    files.delete("/workspace/link", recursive=True)
    assert sorted(os.listdir(workspace)) == ["inner", "mine"]
    assert tree_of(outside) == SECRETS


def test_fifos_and_sockets_never_hang(files: SandboxFiles, workspace: Path) -> None:
    os.mkfifo(workspace / "fifo")
    with socket.socket(socket.AF_UNIX) as server:
        directory = os.open(workspace, os.O_RDONLY)
        server.bind(f"/proc/self/fd/{directory}/socket")
        os.close(directory)
        for name in ("fifo", "socket"):
            for call in (files.read, lambda path: files.listing(path, 10)):
                with pytest.raises(FileFault) as caught:
                    call(f"/workspace/{name}")
                assert caught.value.kind is FaultKind.WRONG_KIND
            assert files.stat(f"/workspace/{name}").type == name
            files.write(f"/workspace/{name}", b"now a file")
            assert files.read(f"/workspace/{name}") == b"now a file"


@pytest.mark.root
def test_devices_are_not_opened(files: SandboxFiles, workspace: Path) -> None:
    for name, kind, device in [
        ("zero", stat.S_IFCHR, (1, 5)),
        ("tty", stat.S_IFCHR, (5, 0)),
        ("b", stat.S_IFBLK, (7, 0)),
    ]:
        os.mknod(workspace / name, kind | 0o666, os.makedev(*device))
        os.chown(workspace / name, UID, UID)
        with pytest.raises(FileFault) as caught:
            files.read(f"/workspace/{name}")
        assert caught.value.kind is FaultKind.WRONG_KIND
        assert files.stat(f"/workspace/{name}").type == "device"
        files.delete(f"/workspace/{name}")


def test_a_file_lease_answers_at_once(files: SandboxFiles, workspace: Path) -> None:
    files.write("/workspace/a", b"old")
    holder = os.open(workspace / "a", os.O_RDWR)
    try:
        fcntl.fcntl(holder, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    except OSError as error:
        os.close(holder)
        pytest.skip(f"no leases on this file system: {error}")
    previous = None
    try:
        previous = signal.signal(signal.SIGIO, signal.SIG_IGN)
        with pytest.raises(FileFault) as caught:
            files.read("/workspace/a")
        assert caught.value.kind is FaultKind.LOCKED
        files.write("/workspace/a", b"new")
        assert files.read("/workspace/a") == b"new"
    finally:
        os.close(holder)
        if previous is not None:
            signal.signal(signal.SIGIO, previous)


RENAMER = """
import os, sys, threading
os.chdir(sys.argv[1])
done = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), done.set()), daemon=True).start()
print("ready", flush=True)
while not done.is_set():
    for there, back in ((("a/b", "moved"), ("moved", "a/b")), (("a", "x"), ("x", "a"))):
        os.rename(*there)
        os.rename(*back)
"""


def test_calls_below_moving_directories_stay_inside(
    files: SandboxFiles, workspace: Path, outside: Path, root: WorkspaceRoot
) -> None:
    files.mkdir("/workspace/a/b/c", parents=True)
    with program(RENAMER, str(workspace), uid=UID):
        for number in range(200):
            made = f"/workspace/a/b/c/{number % 3}"
            for call in (
                lambda: files.write("/workspace/a/b/c/f", b"mine"),
                lambda: files.read("/workspace/a/b/c/f") == b"mine" or pytest.fail("read something else"),
                lambda: files.move("/workspace/a/b/c/f", "/workspace/a/f", overwrite=True),
                partial(files.mkdir, f"{made}/e", parents=True),
                partial(files.delete, made, recursive=True),
            ):
                assert kind_of(call) in (None, FaultKind.NOT_FOUND, FaultKind.EXISTS)
    assert set(tree_of(workspace).values()) <= {b"mine"}
    assert root.empty_trash()
    assert tree_of(outside) == SECRETS
