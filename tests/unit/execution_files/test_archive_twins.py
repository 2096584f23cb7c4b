"""The two programs that write archives: the same bytes, and the same answers while a tree changes under them."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sandloom.execution import archive_native
from sandloom.execution.archive_native import NativeTree
from sandloom.execution.archive_out import ArchiveOut
from sandloom.execution.archive_tree import PIECE_BYTES, PythonTree
from sandloom.execution.file_faults import FileFault
from sandloom.execution.openat import SCAN_FLAGS
from sandloom.execution.tar_format import BLOCK_BYTES, END
from sandloom.execution.tree_walk import TreeBounds
from tests.unit.execution_files.archives import unpacked
from tests.unit.execution_files.people import in_child, program

BOUNDS = TreeBounds(10_000, 128, 600)
MAX_BYTES = 1 << 40


@contextmanager
def opened(top: Path) -> Iterator[ArchiveOut]:
    fd = os.open(top, SCAN_FLAGS)
    with ArchiveOut(fd, "/workspace", None, BOUNDS, MAX_BYTES, nullcontext, ExitStack()) as archive:
        yield archive


def whole(top: Path) -> bytes:
    with opened(top) as archive:
        return b"".join(archive.chunks())


def by_both(top: Path, bounds: TreeBounds = BOUNDS, max_bytes: int = MAX_BYTES) -> list[tuple[bytes, int, str | None]]:
    functions = archive_native.load()
    assert functions is not None
    fd = os.open(top, SCAN_FLAGS)
    try:
        found = []
        for tree in (NativeTree(functions, fd, bounds, max_bytes), PythonTree(fd, bounds, max_bytes)):
            with tree:
                data = b"".join(tree.pieces())
                found.append((data, tree.skipped, tree.cut))
        return found
    finally:
        os.close(fd)


def fill(top: Path) -> None:
    """All that a header can have to say, and content around the sizes of blocks and pieces."""
    for size in (0, 1, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, PIECE_BYTES - 600, PIECE_BYTES, PIECE_BYTES + 1):
        (top / f"size-{size}").write_bytes(os.urandom(size))
    for name in (b"n" * 99, b"n" * 100, b"n" * 101, b"n" * 255, b"\xff\xfe", "é".encode() * 60, b"\xed\xa0\x80" * 40):
        Path(os.fsdecode(os.path.join(os.fsencode(top), name))).write_bytes(name)
    deep = top / ("d" * 98) / ("e" * 120) / "f"
    deep.mkdir(parents=True)
    (deep / "inside").write_text("x")
    for number, target in enumerate((b"t", b"t" * 100, b"t" * 101, b"t" * 4095, b"\xff" * 200)):
        os.symlink(target, os.path.join(os.fsencode(top), b"link-%d" % number))
    for number, seconds in enumerate((-5, 0, 1, (1 << 33) - 1, 1 << 33)):
        (top / f"time-{number}").write_text("")
        os.utime(top / f"time-{number}", (seconds, seconds))
        (top / f"time-{number}").chmod(0o6400 | 0o111 * number)
    os.mkfifo(top / "fifo")
    with (top / "hole").open("wb") as file:
        file.truncate(3 * PIECE_BYTES + 5)


@pytest.mark.usefixtures("compiled")
def test_they_write_the_same_bytes(tmp_path: Path) -> None:
    fill(tmp_path)
    native, twin = by_both(tmp_path)
    assert native == twin
    assert native[1:] == (1, None)
    assert len(native[0]) % BLOCK_BYTES == 0
    assert len(unpacked(native[0] + END)) == sum(len(inner) + len(names) for _, inner, names in os.walk(tmp_path)) - 1


PARTS = st.binary(min_size=1, max_size=60).map(lambda part: part.replace(b"/", b"_").replace(b"\0", b"_"))
ENTRIES = st.lists(
    st.tuples(
        st.lists(PARTS.filter(lambda part: part not in (b".", b"..")), min_size=1, max_size=4),
        st.sampled_from("fdls"),
        st.integers(0, 3000),
    ),
    max_size=8,
)


@pytest.mark.usefixtures("compiled")
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ENTRIES)
def test_they_agree_on_any_tree(tmp_path_factory: pytest.TempPathFactory, entries: list) -> None:
    top = os.fsencode(tmp_path_factory.mktemp("any"))
    for parts, kind, size in entries:
        path = os.path.join(top, *parts)
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            if kind == "d":
                os.mkdir(path)
            elif kind == "l":
                os.symlink(b"t" * (size or 1), path)
            elif kind == "s":
                os.mkfifo(path)
            else:
                with open(path, "xb") as file:
                    file.write(b"x" * size)
        except OSError:
            continue  # an earlier entry is in the way
    native, twin = by_both(Path(os.fsdecode(top)))
    assert native == twin


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize(
    ("bounds", "max_bytes"),
    [
        (TreeBounds(3, 128, 600), MAX_BYTES),
        (TreeBounds(10_000, 1, 600), MAX_BYTES),
        (TreeBounds(10_000, 128, 600), 1000),
    ],
    ids=["entries", "depth", "bytes"],
)
def test_they_name_the_same_bound(tmp_path: Path, bounds: TreeBounds, max_bytes: int) -> None:
    fill(tmp_path)
    (*_, native), (*_, twin) = by_both(tmp_path, bounds, max_bytes)
    assert native == twin
    assert native is not None


@pytest.mark.usefixtures("compiled")
def test_a_size_that_no_old_field_holds(tmp_path: Path) -> None:
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(9 << 30)
    functions = archive_native.load()
    assert functions is not None
    fd = os.open(tmp_path, SCAN_FLAGS)
    with NativeTree(functions, fd, BOUNDS, MAX_BYTES) as native:
        twin = PythonTree(fd, BOUNDS, MAX_BYTES)
        begun = [b"".join(islice(tree.pieces(), 3)) for tree in (native, twin)]
    os.close(fd)
    assert begun[0][:2048] == begun[1][:2048]
    assert b"size=%d" % (9 << 30) in begun[0][:1024]


@pytest.mark.usefixtures("walking")
@pytest.mark.parametrize("change", ["cut", "grow", "remove"])
def test_a_file_that_changes_while_it_is_read_keeps_the_size_that_was_announced(tmp_path: Path, change: str) -> None:
    size = 4 * PIECE_BYTES + 7
    (tmp_path / "file").write_bytes(b"x" * size)
    with opened(tmp_path) as archive:
        pieces = archive.chunks()
        data = next(pieces)
        if change == "cut":
            os.truncate(tmp_path / "file", 10)
        elif change == "grow":
            with (tmp_path / "file").open("ab") as file:
                file.write(b"y" * PIECE_BYTES)
        else:
            (tmp_path / "file").unlink()
        data += b"".join(pieces)
    content = unpacked(data)["file"][1]
    assert len(content) == size
    assert set(content) == set(b"x\0" if change == "cut" else b"x")


CHANGER = """
import os, sys, threading
os.chdir(sys.argv[1])
done = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), done.set()), daemon=True).start()
print("ready", flush=True)
makers = [
    lambda name: open(name, "w").write("x" * 1000),
    os.mkfifo,
    lambda name: os.symlink(sys.argv[2], name),
    os.mkdir,
]
while not done.is_set():
    for number in range(40):
        makers[number % 4]("new")
        os.rename("entry", "old")
        os.rename("new", "entry")
        os.rmdir("old") if os.path.isdir("old") and not os.path.islink("old") else os.unlink("old")
"""


@pytest.mark.usefixtures("walking")
def test_what_is_exchanged_at_full_speed_neither_holds_it_up_nor_leads_outside(tmp_path: Path) -> None:
    outside, top = tmp_path / "outside", tmp_path / "top"
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret" * 100)
    top.mkdir()
    (top / "entry").write_text("x" * 1000)
    (top / "still").write_text("here")
    kinds = set()
    with program(CHANGER, str(top), str(outside)):
        for _ in range(20_000):
            data = whole(top)
            assert b"secret" * 2 not in data
            found = unpacked(data)
            assert found["still"][1] == b"here"
            kinds |= {found["entry"][0]} if "entry" in found else {b""}
            if len(kinds) >= 4:
                break
    assert {b"0", b"2", b"5"} <= kinds


@pytest.mark.usefixtures("walking")
def test_an_archive_that_is_given_up_leaves_nothing_open(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    for name in ("a/big", "a/b/big", "big"):
        (tmp_path / name).write_bytes(bytes(3 * PIECE_BYTES))
    before = os.listdir("/proc/self/fd")
    for begun in range(4):
        with opened(tmp_path) as archive:
            assert len(list(islice(archive.chunks(), begun))) == begun
    assert os.listdir("/proc/self/fd") == before


@pytest.mark.usefixtures("walking")
def test_a_lack_of_descriptors_is_no_reason_to_leave_files_out(tmp_path: Path) -> None:
    top = tmp_path
    for _ in range(30):
        top /= "d"
        top.mkdir()
    (top / "file").write_text("content")

    def starved() -> None:
        fd = os.open(tmp_path, SCAN_FLAGS)
        resource.setrlimit(resource.RLIMIT_NOFILE, (fd + 10, fd + 10))
        made = ArchiveOut(fd, "/workspace", None, BOUNDS, MAX_BYTES, nullcontext, ExitStack())
        with made as archive, pytest.raises(FileFault, match="EMFILE"):
            list(archive.chunks())

    assert in_child(starved)
