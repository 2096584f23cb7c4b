"""What a sandbox sends as a tree is not trusted: nothing lands outside, nothing half."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

import pytest

from sandloom.sdk.local_files import save
from sandloom.sdk.local_trees import Unpacked, pack, unpack
from tests.unit.execution_files.archives import archive, info, pieces
from tests.unit.execution_files.people import tree_of


def test_a_tree_comes_back_as_it_went(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "deep" / ("n" * 200)).mkdir(parents=True)
    (source / "empty").mkdir()
    (source / "deep" / ("n" * 200) / "é").write_bytes(os.urandom(300_000))
    (source / "run").write_bytes(b"#!")
    (source / "run").chmod(0o755)
    (source / "link").symlink_to("deep/../run")
    os.mkfifo(source / "fifo")
    done = unpack(pack(source), tmp_path / "copy")
    assert done == Unpacked(files=2, size_bytes=300_002, skipped=0)
    (source / "fifo").unlink()
    assert tree_of(tmp_path / "copy") == tree_of(source)
    assert (tmp_path / "copy" / "run").stat().st_mode & 0o777 == 0o755
    assert os.readlink(tmp_path / "copy" / "link") == "deep/../run"
    assert (tmp_path / "copy" / "empty").is_dir()


def test_what_the_service_left_out_is_counted(tmp_path: Path) -> None:
    sent = archive([("a", b"x")]) + b"sandloom: skipped=3\n".ljust(512, b"\0")
    assert unpack(pieces(sent, 100), tmp_path / "copy").skipped == 3


@pytest.mark.parametrize(
    "entries",
    [
        [("../x", b"")],
        [("/x", b"")],
        [("a/../../x", b"")],
        [("a", b"1"), ("a", b"2")],
        [(info("d", tarfile.SYMTYPE, "."), b""), (info("d/e/l", tarfile.SYMTYPE, "../../x"), b"")],
    ],
)
def test_what_leads_elsewhere_is_refused_and_leaves_nothing(tmp_path: Path, entries: list) -> None:
    with pytest.raises((tarfile.TarError, OSError)):
        unpack(pieces(archive(entries), 1000), tmp_path / "copy")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("target", ["/etc/passwd", "../x", "a/../../x"])
def test_links_out_of_the_tree_and_hard_links_are_left_out(tmp_path: Path, target: str) -> None:
    odd = [
        (info("l", tarfile.SYMTYPE, target), b""),
        (info("l/f", tarfile.REGTYPE), b"a file below"),
        (info("h", tarfile.LNKTYPE, target), b""),
        (info("p", tarfile.FIFOTYPE), b""),
    ]
    assert unpack(pieces(archive(odd), 1000), tmp_path / "copy").skipped == 3
    assert tree_of(tmp_path / "copy") == {"l/f": b"a file below"}


def test_a_cut_archive_leaves_nothing(tmp_path: Path) -> None:
    whole = archive([("a", b"x" * 100_000)])
    with pytest.raises(tarfile.TarError):
        unpack(pieces(whole[:50_000], 1000), tmp_path / "copy")
    assert os.listdir(tmp_path) == []


def test_nothing_that_exists_is_touched(tmp_path: Path) -> None:
    (tmp_path / "copy").symlink_to("nowhere")
    with pytest.raises(FileExistsError):
        unpack(pieces(archive([]), 1000), tmp_path / "copy")


@pytest.mark.parametrize("parent", ["missing", "file"])
def test_without_a_directory_for_it_nothing_is_fetched_and_the_directory_is_named(tmp_path: Path, parent: str) -> None:
    (tmp_path / "file").write_text("")
    fetched = iter([b"data"])
    for store in (save, unpack):
        with pytest.raises((FileNotFoundError, NotADirectoryError), match="make it first") as caught:
            store(fetched, tmp_path / parent / "copy")
        assert caught.value.filename == str(tmp_path / parent)
    assert next(fetched) == b"data"
