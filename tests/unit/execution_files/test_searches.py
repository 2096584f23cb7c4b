"""Searches by name and by content, and replacing."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from sandloom.errors import ValidationFailed
from sandloom.execution import files as files_module
from sandloom.execution.file_faults import FaultKind
from sandloom.execution.file_writer import FileWriter
from sandloom.execution.files import SandboxFiles
from sandloom.execution.tree_walk import TreeBounds
from sandloom.execution.trees import Grepped, SandboxTrees, TreeLimits
from tests.unit.execution_files.people import GID, UID, kind_of
from workers.patterns import line_search

TREE = {
    "a.py": b"import os\nprint('x')\n",
    "b.txt": b"one\r\ntwo words\r\n",
    "src/a.py": b"def f():\n    return 1\n",
    "src/deep/c.py": b"x = 1\n" * 10 + b"needle\n",
    "src/deep/.hidden.py": b"needle",
    "src/deep/bin": b"\x00needle\n",
    "odd\udcff": b"needle\xff\n",
}


@pytest.fixture(autouse=True)
def tree(files: SandboxFiles, workspace: Path) -> None:
    for name, data in TREE.items():
        (workspace / name).parent.mkdir(parents=True, exist_ok=True)
        (workspace / name).write_bytes(data)
    (workspace / "link").symlink_to("/etc")
    (workspace / "linked.py").symlink_to("a.py")
    os.mkfifo(workspace / "fifo.py")
    subprocess.run(["chown", "-hR", f"{UID}:{GID}", workspace], check=True)


def globbed(files: SandboxFiles, pattern: str, path: str = "/workspace") -> list[str]:
    return [entry.path.removeprefix("/workspace/") for entry in files.trees.glob(path, pattern, 1000).entries]


def grepped(
    files: SandboxFiles, pattern: str, path: str = "/workspace", glob: str | None = None, most: int = 100
) -> Grepped:
    return files.trees.grep(path, line_search(pattern), glob, most)


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("*.py", ["a.py", "fifo.py", "linked.py"]),
        ("**/*.py", ["a.py", "fifo.py", "linked.py", "src/a.py", "src/deep/.hidden.py", "src/deep/c.py"]),
        ("src/**", ["src", "src/a.py", "src/deep", "src/deep/.hidden.py", "src/deep/bin", "src/deep/c.py"]),
        ("s?c/[ab].py", ["src/a.py"]),
        ("*/{a,c}.py", ["src/a.py"]),
        ("{src/deep,.}/[!a-f]*", ["link", "linked.py", "odd�", "src", "src/deep/.hidden.py"]),
        ("**/deep/../*", None),
        ("/etc/*", None),
        ("link/*", []),
        ("**/passwd", []),
        ("[", []),
        ("odd?", ["odd�"]),
        ("{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}", None),
        ("", None),
    ],
)  # fmt: skip
def test_patterns_of_paths(files: SandboxFiles, pattern: str, found: list[str] | None) -> None:
    if found is None:
        assert kind_of(lambda: globbed(files, pattern)) is FaultKind.PATTERN_INVALID
    else:
        assert globbed(files, pattern) == found


def test_a_glob_is_bounded(files: SandboxFiles) -> None:
    some = files.trees.glob("/workspace", "**", 3)
    assert (len(some.entries), some.truncated) == (3, True)
    assert not files.trees.glob("/workspace", "**", 13).truncated
    few = SandboxTrees(files, TreeLimits(search=TreeBounds(max_entries=4)))
    assert few.glob("/workspace", "**", 100).truncated
    shallow = SandboxTrees(files, TreeLimits(search=TreeBounds(max_depth=1)))
    assert shallow.glob("/workspace", "**/*.py", 100).truncated
    assert kind_of(lambda: files.trees.glob("/workspace/a.py", "*", 10)) is FaultKind.WRONG_KIND
    assert kind_of(lambda: files.trees.glob("/workspace/link", "*", 10)) is FaultKind.WRONG_KIND


def test_lines_are_found_where_they_are(files: SandboxFiles) -> None:
    found = grepped(files, "needle")
    assert sorted((match.path, match.line, match.column, match.text) for match in found.matches) == [
        ("/workspace/odd�", 1, 1, "needle�"),
        ("/workspace/src/deep/.hidden.py", 1, 1, "needle"),
        ("/workspace/src/deep/c.py", 11, 1, "needle"),
    ]
    assert (found.searched, found.skipped, found.truncated) == (6, 1, False)
    assert [match.path_base64 for match in found.matches if "odd" in match.path] == ["L3dvcmtzcGFjZS9vZGT/"]
    assert [match.path for match in grepped(files, "needle", glob="c*").matches] == ["/workspace/src/deep/c.py"]
    assert grepped(files, "needle", glob="src/*").matches == []


@pytest.mark.parametrize(
    ("pattern", "lines"),
    [
        ("^two", [2]),
        ("o", [1, 2]),
        ("^$", []),
        ("words\\s$", [2]),
        ("(?i)ONE", [1]),
        ("one\\s*two", []),
        ("x*", [1, 2]),
    ],
)
def test_expressions_are_matched_line_by_line(files: SandboxFiles, pattern: str, lines: list[int]) -> None:
    assert [match.line for match in grepped(files, pattern, "/workspace/b.txt").matches] == lines


@pytest.mark.parametrize("pattern", ["(", "a{2000}{2000}", "(a)\\1", "[z-a]", "(?<=a)b", "*"])
def test_an_expression_that_is_none_is_said(pattern: str) -> None:
    with pytest.raises(ValidationFailed) as caught:
        line_search(pattern)
    assert caught.value.extra["errors"][0]["field"] == "pattern"


def test_catastrophes_of_other_engines_are_none_here(files: SandboxFiles, workspace: Path) -> None:
    (workspace / "long").write_bytes(b"a" * 900_000 + b"!")
    found = grepped(files, "(a+)+$|(a|aa)+b|(.*)*c", "/workspace/long")
    assert (found.matches, found.truncated) == ([], False)


def test_what_is_found_is_bounded(files: SandboxFiles, workspace: Path) -> None:
    (workspace / "many").write_bytes(b"hit\n" * 500)
    found = grepped(files, "hit", most=7)
    assert ([match.line for match in found.matches], found.truncated) == (list(range(1, 8)), True)
    (workspace / "long").write_bytes((b"x" * 2000 + b"needle" + b"y" * 2_000_000 + b"\n") * 2)
    shown = grepped(files, "needle", "/workspace/long").matches
    assert [(match.line, match.column) for match in shown] == [(1, 2001), (2, 2001)]
    assert all("needle" in match.text and len(match.text) <= 400 for match in shown)
    (workspace / "wides").write_bytes((b"\xff" * 400 + b"\n") * 1000)
    wide = grepped(files, "(?-m)", "/workspace/wides", most=1000)
    assert wide.truncated
    assert 0 < len(wide.matches) < 200


def test_matches_come_right_over_the_borders_of_blocks(files: SandboxFiles, workspace: Path) -> None:
    lines = [b"%d %s" % (number, b"z" * (number * 37 % 1500)) for number in range(1, 2000)]
    (workspace / "blocks").write_bytes(b"\n".join(lines))
    found = grepped(files, "^[0-9]*00 ", "/workspace/blocks")
    assert [(match.line, match.text.split()[0]) for match in found.matches] == [
        (n, str(n)) for n in range(100, 2000, 100)
    ]


def test_replacing_changes_that_and_nothing_else(files: SandboxFiles, workspace: Path) -> None:
    (workspace / "bin").write_bytes(b"\x00\xffab ab ab\xfe")
    (workspace / "bin").chmod(0o751)
    os.chown(workspace / "bin", UID, GID)
    assert files.replace("/workspace/bin", b"ab", b"xyz", 2) == (2, 13)
    assert (workspace / "bin").read_bytes() == b"\x00\xffxyz xyz ab\xfe"
    assert (workspace / "bin").stat().st_mode & 0o7777 == 0o751
    before = (workspace / "bin").stat().st_ino
    assert files.replace("/workspace/bin", b"nothing", b"x") == (0, 13)
    assert (workspace / "bin").stat().st_ino == before
    assert kind_of(lambda: files.replace("/workspace/linked.py", b"x", b"y")) is FaultKind.WRONG_KIND
    assert kind_of(lambda: files.replace("/workspace/fifo.py", b"x", b"y")) is FaultKind.WRONG_KIND
    assert kind_of(lambda: files.replace("/workspace/none", b"x", b"y")) is FaultKind.NOT_FOUND
    assert kind_of(lambda: files.replace("/home/x", b"x", b"y")) is FaultKind.PATH_INVALID


def test_a_replacement_never_grows_beyond_the_limit(files: SandboxFiles, workspace: Path) -> None:
    (workspace / "f").write_bytes(b"a" * 1000)
    assert kind_of(lambda: files.replace("/workspace/f", b"a", b"b" * 60_000)) is FaultKind.TOO_LARGE
    assert (workspace / "f").read_bytes() == b"a" * 1000


def test_a_command_s_change_in_between_is_not_lost(
    files: SandboxFiles, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupted(FileWriter):
        def write(self, data: bytes | memoryview) -> None:
            (workspace / "a.py").write_bytes(b"changed by a command")
            super().write(data)

    monkeypatch.setattr(files_module, "FileWriter", Interrupted)
    assert kind_of(lambda: files.replace("/workspace/a.py", b"os", b"sys")) is FaultKind.LOCKED
    assert (workspace / "a.py").read_bytes() == b"changed by a command"
