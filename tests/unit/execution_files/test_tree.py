from __future__ import annotations

import base64
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from sandloom.execution import openat
from sandloom.execution.file_entries import rfc3339
from sandloom.execution.file_faults import FaultKind, FileFault
from sandloom.execution.files import FileLimits, SandboxFiles
from sandloom.execution.workspace import WorkspaceRoot
from tests.unit.execution_files.people import GID, UID, program, tree_of


def fails(kind: FaultKind, call: Callable[[], object]) -> FileFault:
    with pytest.raises(FileFault) as caught:
        call()
    assert caught.value.kind is kind, caught.value
    return caught.value


class TestMkdir:
    def test_a_directory_is_the_sandboxs_own_whatever_the_umask(self, files: SandboxFiles, workspace: Path) -> None:
        before = os.umask(0o777)
        try:
            assert files.mkdir("/workspace/d")
        finally:
            os.umask(before)
        found = (workspace / "d").stat()
        assert (stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid) == (0o755, UID, GID)

    def test_one_that_is_there_is_an_error_only_without_parents(self, files: SandboxFiles) -> None:
        assert files.mkdir("/workspace/d/e", parents=True)
        assert not files.mkdir("/workspace/d/e", parents=True)
        assert files.mkdir("/workspace/d/e/f/g", parents=True)
        fails(FaultKind.EXISTS, lambda: files.mkdir("/workspace/d"))
        fails(FaultKind.NOT_FOUND, lambda: files.mkdir("/workspace/x/y"))

    def test_a_file_in_the_way_is_an_error(self, files: SandboxFiles) -> None:
        files.write("/workspace/a", b"")
        fails(FaultKind.EXISTS, lambda: files.mkdir("/workspace/a"))
        fails(FaultKind.WRONG_KIND, lambda: files.mkdir("/workspace/a", parents=True))
        fails(FaultKind.WRONG_KIND, lambda: files.mkdir("/workspace/a/b/c", parents=True))

    def test_roots_are_refused(self, files: SandboxFiles) -> None:
        fails(FaultKind.PATH_INVALID, lambda: files.mkdir("/workspace", parents=True))
        fails(FaultKind.PATH_INVALID, lambda: files.mkdir("/envs/python"))

    def test_the_longest_path_works(self, quick_root: WorkspaceRoot) -> None:
        directories = quick_root.create(("default", "box"), UID, GID).directories
        files = SandboxFiles(directories, UID, GID, quick_root.trash)
        path = "/workspace" + "/d" * 2040
        assert files.mkdir(path, parents=True)
        files.write(f"{path}/f", b"deep")
        assert files.read(f"{path}/f") == b"deep"
        files.delete("/workspace/d", recursive=True)


class TestDelete:
    def test_files_links_and_empty_directories(self, files: SandboxFiles, workspace: Path) -> None:
        files.write("/workspace/a", b"")
        files.mkdir("/workspace/d")
        (workspace / "link").symlink_to("d")
        (workspace / "dangling").symlink_to("nowhere")
        for name in ("link", "dangling", "a", "d"):
            files.delete(f"/workspace/{name}")
            fails(FaultKind.NOT_FOUND, lambda name=name: files.delete(f"/workspace/{name}"))  # type: ignore[misc]
        assert os.listdir(workspace) == []

    def test_a_directory_with_entries_only_recursively(self, files: SandboxFiles, workspace: Path) -> None:
        files.mkdir("/workspace/d/e", parents=True)
        files.write("/workspace/d/e/a", b"")
        fails(FaultKind.NOT_EMPTY, lambda: files.delete("/workspace/d"))
        assert (workspace / "d/e/a").exists()
        files.delete("/workspace/d", recursive=True)
        assert os.listdir(workspace) == []

    @pytest.mark.parametrize("path", ["/workspace", "/workspace/", "/home", "/envs/x", "/"])
    def test_roots_are_refused(self, files: SandboxFiles, path: str) -> None:
        fails(FaultKind.PATH_INVALID, lambda: files.delete(path, recursive=True))

    def test_links_inside_are_removed_not_followed(self, files: SandboxFiles, workspace: Path, data_dir: Path) -> None:
        outside = data_dir / "outside"
        outside.mkdir()
        (outside / "kept").write_text("x")
        files.mkdir("/workspace/d")
        (workspace / "d/up").symlink_to("../..")
        (workspace / "d/out").symlink_to(outside)
        files.delete("/workspace/d", recursive=True)
        assert tree_of(outside) == {"kept": b"x"}
        assert os.listdir(workspace) == []

    def test_a_tree_that_takes_long_is_gone_at_once_and_removed_later(
        self, files: SandboxFiles, root: WorkspaceRoot, workspace: Path
    ) -> None:
        hurried = SandboxFiles(files._directories, UID, GID, root.trash, FileLimits(delete_seconds=-1))
        files.mkdir("/workspace/d/e", parents=True)
        hurried.delete("/workspace/d", recursive=True)
        assert os.listdir(workspace) == []
        root.trash.join()
        assert os.listdir(root.path / ".trash") == []

    def test_a_deep_tree_with_odd_modes(self, files: SandboxFiles, workspace: Path, root: WorkspaceRoot) -> None:
        inner = workspace
        for _ in range(60):
            inner = inner / "d"
            inner.mkdir()
            os.chown(inner, UID, GID)
        inner.chmod(0)
        files.delete("/workspace/d", recursive=True)
        assert os.listdir(workspace) == os.listdir(root.path / ".trash") == []

    @pytest.mark.root
    def test_a_read_only_directory_keeps_its_entries(self, files: SandboxFiles, workspace: Path) -> None:
        files.mkdir("/workspace/d/e/f", parents=True)
        files.write("/workspace/d/a", b"")
        (workspace / "d").chmod(0o555)
        fails(FaultKind.ACCESS, lambda: files.delete("/workspace/d/a"))
        fails(FaultKind.ACCESS, lambda: files.delete("/workspace/d/e", recursive=True))
        assert sorted(os.listdir(workspace / "d")) == ["a", "e"]

    def test_a_command_that_goes_on_writing_does_not_hold_it_up(
        self, files: SandboxFiles, workspace: Path, root: WorkspaceRoot
    ) -> None:
        files.mkdir("/workspace/d")
        hurried = SandboxFiles(files._directories, UID, GID, root.trash, FileLimits(delete_seconds=0.2))
        with program(WRITER, str(workspace / "d"), uid=UID):
            hurried.delete("/workspace/d", recursive=True)
            assert os.listdir(workspace) == []
        root.trash.join()
        assert root.empty_trash()


WRITER = """
import os, sys, threading
os.chdir(sys.argv[1])
done = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), done.set()), daemon=True).start()
open("first", "w").close()
print("ready", flush=True)
number = 0
while not done.is_set():
    number += 1
    try:
        os.makedirs(f"d{number % 50}/e/f", exist_ok=True)
        open(f"d{number % 50}/e/file", "w").close()
    except OSError:
        pass
"""


class TestMove:
    @pytest.fixture(params=["renameat2", "fallback"], autouse=True)
    def renaming(self, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
        if request.param == "fallback":
            monkeypatch.setattr(openat, "_RENAME_NOREPLACE", 1 << 10)  # which the kernel answers with EINVAL

    def test_files_directories_and_links(self, files: SandboxFiles, workspace: Path) -> None:
        files.mkdir("/workspace/d/e", parents=True)
        files.write("/workspace/d/a", b"1")
        (workspace / "d/link").symlink_to("a")
        os.chown(workspace / "d/link", UID, GID, follow_symlinks=False)
        files.move("/workspace/d/a", "/workspace/b")
        files.move("/workspace/d", "/workspace/f")
        files.move("/workspace/f/link", "/workspace/link")
        assert os.readlink(workspace / "link") == "a"
        assert sorted(str(path.relative_to(workspace)) for path in workspace.rglob("*")) == ["b", "f", "f/e", "link"]

    def test_nothing_is_replaced_unasked(self, files: SandboxFiles, workspace: Path) -> None:
        files.write("/workspace/a", b"a")
        files.write("/workspace/b", b"b")
        files.mkdir("/workspace/d")
        files.mkdir("/workspace/e")
        for source, destination in (("a", "b"), ("a", "d"), ("d", "a"), ("d", "e"), ("a", "a")):
            fails(FaultKind.EXISTS, lambda s=source, d=destination: files.move(f"/workspace/{s}", f"/workspace/{d}"))  # type: ignore[misc]
        assert tree_of(workspace) == {"a": b"a", "b": b"b"}
        files.move("/workspace/a", "/workspace/b", overwrite=True)
        files.move("/workspace/d", "/workspace/e", overwrite=True)
        assert tree_of(workspace) == {"b": b"a"}

    def test_overwriting_keeps_kinds_apart(self, files: SandboxFiles, workspace: Path) -> None:
        files.write("/workspace/a", b"a")
        files.mkdir("/workspace/d/e", parents=True)
        files.mkdir("/workspace/f")
        fails(FaultKind.WRONG_KIND, lambda: files.move("/workspace/a", "/workspace/d", overwrite=True))
        fails(FaultKind.WRONG_KIND, lambda: files.move("/workspace/f", "/workspace/a", overwrite=True))
        fails(FaultKind.NOT_EMPTY, lambda: files.move("/workspace/f", "/workspace/d", overwrite=True))
        files.move("/workspace/a", "/workspace/a", overwrite=True)
        assert tree_of(workspace) == {"a": b"a"}

    def test_a_directory_cannot_move_into_itself(self, files: SandboxFiles) -> None:
        files.mkdir("/workspace/d/e", parents=True)
        for overwrite in (False, True):
            fault = fails(
                FaultKind.PATH_INVALID,
                lambda overwrite=overwrite: files.move("/workspace/d", "/workspace/d/e/f", overwrite),  # type: ignore[misc]
            )
            assert "into itself" in fault.detail

    def test_what_is_missing_is_named(self, files: SandboxFiles) -> None:
        files.write("/workspace/a", b"")
        assert "/workspace/x" in fails(FaultKind.NOT_FOUND, lambda: files.move("/workspace/x", "/workspace/y")).detail
        assert (
            "/workspace/n/y" in fails(FaultKind.NOT_FOUND, lambda: files.move("/workspace/a", "/workspace/n/y")).detail
        )

    @pytest.mark.parametrize(("source", "destination"), [("/workspace", "/workspace/a"), ("/workspace/a", "/home/a")])
    def test_roots_are_refused(self, files: SandboxFiles, source: str, destination: str) -> None:
        files.write("/workspace/a", b"")
        fails(FaultKind.PATH_INVALID, lambda: files.move(source, destination))
        fails(FaultKind.PATH_INVALID, lambda: files.move(destination, source))


class TestStat:
    def test_entries_say_what_lstat_says(self, files: SandboxFiles, workspace: Path) -> None:
        files.write("/workspace/a", b"12345", 0o640)
        os.utime(workspace / "a", ns=(0, 1_700_000_000_123_456_789))
        entry = files.stat("/workspace/a")
        assert (entry.name, entry.path, entry.type, entry.size_bytes, entry.mode) == (
            "a", "/workspace/a", "file", 5, "0640",
        )  # fmt: skip
        assert entry.modified_at == "2023-11-14T22:13:20.123456+00:00"
        assert entry.name_base64 is None
        assert files.stat("/workspace").type == files.stat("/envs").type == "directory"
        fails(FaultKind.NOT_FOUND, lambda: files.stat("/workspace/b"))

    @pytest.mark.parametrize("name", [b"\xff", b"a\xc3", b"\xed\xa0\x80"])
    def test_a_name_that_is_not_utf8_has_its_bytes_beside_it(
        self, files: SandboxFiles, workspace: Path, name: bytes
    ) -> None:
        (workspace / os.fsdecode(name)).write_text("")
        for entry in (files.stat("/workspace/" + os.fsdecode(name)), files.listing("/workspace", 10).entries[0]):
            assert entry.name_base64 is not None
            assert base64.b64decode(entry.name_base64) == name
            assert "\ufffd" in entry.name
            entry.path.encode()

    @pytest.mark.parametrize(
        ("time_ns", "text"),
        [
            (0, "1970-01-01T00:00:00.000000+00:00"),
            (-1, "1969-12-31T23:59:59.999999+00:00"),
            ((1 << 62), "2116-02-20T23:53:38.427387+00:00"),
            (10**21, "9999-12-31T23:59:59.999999+00:00"),
            (-(10**21), "0001-01-01T00:00:00.000000+00:00"),
            ((1 << 63) * 10**9, "9999-12-31T23:59:59.999999+00:00"),
        ],
    )
    def test_times_that_no_calendar_has(self, time_ns: int, text: str) -> None:
        assert rfc3339(time_ns) == text
