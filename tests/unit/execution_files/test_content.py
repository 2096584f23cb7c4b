from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sandloom.execution import file_writer
from sandloom.execution.file_faults import FaultKind, FileFault
from sandloom.execution.files import SandboxFiles
from tests.unit.execution_files.people import GID, UID, in_child, tree_of

NAMELESS = {"nameless": os.O_TMPFILE, "named": os.O_DIRECTORY}


@pytest.fixture(params=NAMELESS, autouse=True)
def staging(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything here holds with nameless files and, where the file system has none, with named ones."""
    monkeypatch.setattr(file_writer, "_NAMELESS", NAMELESS[request.param])


def fails(kind: FaultKind, call: Callable[[], object]) -> FileFault:
    with pytest.raises(FileFault) as caught:
        call()
    assert caught.value.kind is kind, caught.value
    assert "/tmp/" not in caught.value.detail
    return caught.value


@pytest.mark.parametrize("data", [b"", b"x", b"\x00\xff" * 1000, b"a" * (1 << 20)])
def test_what_is_written_is_read(files: SandboxFiles, workspace: Path, data: bytes) -> None:
    assert files.write("/workspace/a", data) == len(data)
    assert files.read("/workspace/a") == data
    assert tree_of(workspace) == {"a": data}


def test_a_new_file_is_private_and_the_sandboxs_own(files: SandboxFiles, workspace: Path) -> None:
    files.write("/workspace/a", b"")
    found = (workspace / "a").stat()
    assert (stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid) == (0o600, UID, GID)


@pytest.mark.parametrize(("asked", "given"), [(0o644, 0o644), (0o7777, 0o777), (0o4755, 0o755), (0o2600, 0o600)])
def test_the_mode_is_that_asked_for_without_special_bits(
    files: SandboxFiles, workspace: Path, asked: int, given: int
) -> None:
    files.write("/workspace/a", b"", asked)
    files.write("/workspace/a", b"", asked)
    assert stat.S_IMODE((workspace / "a").stat().st_mode) == given


def test_a_replaced_file_is_a_new_one(files: SandboxFiles, workspace: Path) -> None:
    files.write("/workspace/a", b"old")
    os.link(workspace / "a", workspace / "hard")
    with files.open_read("/workspace/a") as old:
        other = SandboxFiles(files._directories, UID, GID, files._trash)  # another set of locks
        other.write("/workspace/a", b"new")
        assert old.read_all(100) == b"old"
    assert tree_of(workspace) == {"a": b"new", "hard": b"old"}


def test_a_link_is_replaced_not_followed(files: SandboxFiles, workspace: Path) -> None:
    (workspace / "target").write_text("kept")
    (workspace / "a").symlink_to("target")
    files.write("/workspace/a", b"new")
    assert not (workspace / "a").is_symlink()
    assert tree_of(workspace) == {"a": b"new", "target": b"kept"}


def test_a_directory_is_not_replaced(files: SandboxFiles, workspace: Path) -> None:
    (workspace / "d").mkdir()
    fails(FaultKind.WRONG_KIND, lambda: files.write("/workspace/d", b""))
    fails(FaultKind.WRONG_KIND, lambda: files.read("/workspace/d"))
    fails(FaultKind.WRONG_KIND, lambda: files.read("/workspace"))
    fails(FaultKind.PATH_INVALID, lambda: files.write("/workspace", b""))
    assert os.listdir(workspace) == ["d"]


def test_parents_must_exist(files: SandboxFiles, workspace: Path) -> None:
    (workspace / "file").write_text("")
    fails(FaultKind.NOT_FOUND, lambda: files.write("/workspace/d/a", b""))
    fails(FaultKind.NOT_FOUND, lambda: files.read("/workspace/d/a"))
    fails(FaultKind.NOT_FOUND, lambda: files.read("/workspace/a"))
    fails(FaultKind.WRONG_KIND, lambda: files.write("/workspace/file/a", b""))
    fails(FaultKind.WRONG_KIND, lambda: files.read("/workspace/file/a"))


def test_a_file_too_large_says_how_large_it_is(files: SandboxFiles) -> None:
    files.write_stream("/workspace/a", [b"x" * (1 << 20), b"y"])
    fault = fails(FaultKind.TOO_LARGE, lambda: files.read("/workspace/a"))
    assert fault.extra == {"size_bytes": (1 << 20) + 1}
    assert len(files.read("/workspace/a", max_bytes=2 << 20)) == (1 << 20) + 1
    assert fails(FaultKind.TOO_LARGE, lambda: files.read("/workspace/a", 5)).extra["size_bytes"] == (1 << 20) + 1


def test_a_body_too_large_changes_nothing(files: SandboxFiles, workspace: Path) -> None:
    files.write("/workspace/a", b"old")
    fails(FaultKind.TOO_LARGE, lambda: files.write("/workspace/a", b"x" * ((1 << 20) + 1)))
    fails(FaultKind.TOO_LARGE, lambda: files.write_stream("/workspace/b", [b"123", b"456"], max_bytes=5))
    assert tree_of(workspace) == {"a": b"old"}


def test_a_body_that_breaks_off_changes_nothing(files: SandboxFiles, workspace: Path) -> None:
    def broken() -> Iterator[bytes]:
        yield b"half"
        assert os.geteuid() == os.stat("/proc/self").st_uid  # the caller's code never runs as the sandbox's user
        raise ConnectionResetError("client is gone")

    files.write("/workspace/a", b"old")
    with pytest.raises(ConnectionResetError):
        files.write_stream("/workspace/a", broken())
    assert tree_of(workspace) == {"a": b"old"}
    files.write("/workspace/a", b"new")  # the lock was let go


def test_a_stream_may_come_in_any_pieces(files: SandboxFiles) -> None:
    assert files.write_stream("/workspace/a", [b"", b"ab", b"", b"c"]) == 3
    assert files.read("/workspace/a") == b"abc"


def test_ranges_are_streamed(files: SandboxFiles) -> None:
    data = bytes(range(256)) * 10_000
    files.write_stream("/workspace/a", [data])
    with files.open_read("/workspace/a") as file:
        assert file.size_bytes == len(data)
        assert b"".join(file.chunks()) == data
        assert b"".join(file.chunks(5, 10)) == data[5:15]
        assert b"".join(file.chunks(len(data) - 3, 10)) == data[-3:]
        assert list(file.chunks(len(data) + 1)) == []
        assert max(len(part) for part in file.chunks()) <= 1 << 20


def test_a_file_that_shrinks_or_grows_while_it_is_read(files: SandboxFiles, workspace: Path) -> None:
    files.write("/workspace/a", b"x" * 1000)
    with files.open_read("/workspace/a") as file:
        os.truncate(workspace / "a", 10)
        assert file.read_all(1000) == b"x" * 10
        os.truncate(workspace / "a", 1001)
        assert fails(FaultKind.TOO_LARGE, lambda: file.read_all(1000)).extra["size_bytes"] == 1001


def test_names_of_255_bytes_and_not_utf8(files: SandboxFiles, workspace: Path) -> None:
    for name in ("n" * 255, "é" * 127, "\udcff\udcfe", " ", "-", "a\nb", ".sandloom"):
        files.write(f"/workspace/{name}", name.encode("utf-8", "surrogateescape"))
    assert {os.fsencode(name): data for name, data in tree_of(workspace).items()} == {
        data: data for data in tree_of(workspace).values()
    }
    assert len(tree_of(workspace)) == 7


def test_home_and_envs_can_be_read_but_not_written(files: SandboxFiles) -> None:
    Path(files._directories.home, "a").write_text("home")
    Path(files._directories.envs, "a").write_text("envs")
    for path in (files._directories.home, files._directories.envs):
        os.chown(Path(path, "a"), UID, GID)
    assert (files.read("/home/a"), files.read("/envs/a")) == (b"home", b"envs")
    fails(FaultKind.PATH_INVALID, lambda: files.write("/home/a", b""))
    fails(FaultKind.PATH_INVALID, lambda: files.read("/cache/a"))


@pytest.mark.root
def test_the_service_reads_and_writes_no_more_than_the_sandboxs_user(files: SandboxFiles, workspace: Path) -> None:
    (workspace / "roots").write_text("secret")
    (workspace / "roots").chmod(0o600)
    (workspace / "readonly").mkdir()
    os.chown(workspace / "readonly", UID, GID)
    (workspace / "readonly").chmod(0o555)
    fails(FaultKind.ACCESS, lambda: files.read("/workspace/roots"))
    fails(FaultKind.ACCESS, lambda: files.write("/workspace/readonly/a", b""))
    assert tree_of(workspace) == {"roots": b"secret"}


@pytest.mark.root
def test_the_calling_thread_is_root_again_afterwards(files: SandboxFiles, data_dir: Path) -> None:
    secret = data_dir / "secret"
    secret.write_text("x")
    secret.chmod(0o600)
    files.write("/workspace/a", b"1")
    fails(FaultKind.NOT_FOUND, lambda: files.read("/workspace/missing"))
    assert secret.read_text() == "x"
    assert not in_child(secret.read_text, UID)


@pytest.mark.root
def test_a_sandbox_that_went_away_is_not_found(files: SandboxFiles, root: object) -> None:
    root.delete(("default", "box"))  # type: ignore[attr-defined]
    fails(FaultKind.NOT_FOUND, lambda: files.read("/workspace/a"))
    fails(FaultKind.NOT_FOUND, lambda: files.write("/workspace/a", b""))


def test_ordinary_users_cannot_handle_files_of_others(files: SandboxFiles) -> None:
    def wrong() -> None:
        with pytest.raises(ValueError, match="only root"):
            SandboxFiles(files._directories, UID + 7, GID, files._trash)

    assert in_child(wrong, UID)
