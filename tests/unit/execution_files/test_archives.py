"""Trees as archives, both ways."""

from __future__ import annotations

import fcntl
import gzip
import os
import signal
import socket
import stat
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from sandloom.execution.file_faults import FaultKind, FileFault
from sandloom.execution.files import SandboxFiles
from sandloom.execution.tree_walk import TreeBounds
from sandloom.execution.trees import SandboxTrees, TreeLimits
from tests.unit.execution_files.archives import Entry, archive, info, left_out, pieces, unpacked
from tests.unit.execution_files.people import GID, UID, kind_of, tree_of

pytestmark = pytest.mark.usefixtures("walking")


def out(files: SandboxFiles, path: str = "/workspace") -> bytes:
    with files.trees.open_archive(path) as opened:
        return b"".join(opened.chunks())


LONG = "d" * 120 + "/" + "n" * 200
NAMES = ["a", "a b\n", "é", "odd\udcff\udc80", "s/t/u", LONG, f"{LONG}\udcfe"]


@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
def test_what_goes_in_comes_out(files: SandboxFiles, workspace: Path, form: int) -> None:
    entries = [(name, name.encode("utf-8", "surrogateescape") * 100) for name in NAMES]
    sent = archive(
        [*entries, (info("link", tarfile.SYMTYPE, "t" * 300), b""), (info("dir/", tarfile.DIRTYPE), b"")], form
    )
    counts = files.trees.extract("/workspace", pieces(sent, 700))
    assert (counts.files, counts.directories, counts.links, counts.skipped) == (len(NAMES), 1, 1, 0)
    assert counts.size_bytes == sum(len(data) for _, data in entries)
    for name, data in entries:
        found = (workspace / name).lstat()
        assert (found.st_uid, found.st_gid) == (UID, GID)
        assert (workspace / name).read_bytes() == data
    sent_back = out(files)
    entry = unpacked(sent_back)
    assert {name: entry[name][1] for name in NAMES} == dict(entries)
    assert entry["link"][:2] == (tarfile.SYMTYPE, b"t" * 300)
    assert entry["dir"][0] == tarfile.DIRTYPE
    assert left_out(sent_back) == 0


def test_the_system_s_tar_understands_it_and_is_understood(
    files: SandboxFiles, workspace: Path, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    (source / "deep" / ("n" * 150) / "x").mkdir(parents=True)
    (source / "deep" / ("n" * 150) / "x" / "file").write_bytes(os.urandom(700_000))
    os.link(source / "deep" / ("n" * 150) / "x" / "file", source / "same")
    (source / "empty").write_bytes(b"")
    sent = subprocess.run(["tar", "-C", source, "-cf", "-", "."], check=True, capture_output=True).stdout
    files.trees.extract("/workspace/copy", pieces(sent, 100_000))
    assert tree_of(workspace / "copy") == tree_of(source)
    assert (workspace / "copy" / "same").stat().st_nlink == 2
    back = tmp_path / "back"
    back.mkdir()
    subprocess.run(["tar", "-C", back, "-xf", "-"], input=out(files, "/workspace/copy"), check=True)
    assert tree_of(back) == tree_of(source)


def test_one_file_is_an_archive_too(files: SandboxFiles) -> None:
    files.write("/workspace/f", b"content", 0o640)
    assert unpacked(out(files, "/workspace/f")) == {"f": (tarfile.REGTYPE, b"content", 0o640)}


def test_special_things_are_skipped_and_counted_both_ways(files: SandboxFiles, workspace: Path) -> None:
    odd: list[Entry] = [
        (info("fifo", tarfile.FIFOTYPE), b""),
        (info("dev", tarfile.CHRTYPE, devmajor=1, devminor=3), b""),
        (info("setuid", mode=0o6755), b"x"),
        (info("shut/", tarfile.DIRTYPE, mode=0), b""),
        ("shut/inside", b"y"),
    ]
    counts = files.trees.extract("/workspace", [archive(odd)])
    assert (counts.files, counts.skipped) == (2, 2)
    assert stat.S_IMODE((workspace / "setuid").stat().st_mode) == 0o755
    assert sorted(os.listdir(workspace)) == ["setuid", "shut"]
    os.mkfifo(workspace / "fifo")
    with socket.socket(socket.AF_UNIX) as server:
        directory = os.open(workspace, os.O_RDONLY)
        server.bind(f"/proc/self/fd/{directory}/socket")
        os.close(directory)
        os.chmod(workspace / "setuid", 0o4755)
        sent = out(files)
    found = unpacked(sent)
    assert set(found) == {"setuid", "shut", "shut/inside"}
    assert found["setuid"][2] == 0o755
    assert left_out(sent) == 2


def test_a_leased_file_does_not_hold_the_archive_up(files: SandboxFiles, workspace: Path) -> None:
    files.write("/workspace/a", b"leased")
    files.write("/workspace/b", b"free")
    holder = os.open(workspace / "a", os.O_RDWR)
    previous = signal.signal(signal.SIGIO, signal.SIG_IGN)
    try:
        fcntl.fcntl(holder, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        sent = out(files)
    except OSError as error:
        pytest.skip(f"no leases on this file system: {error}")
    finally:
        os.close(holder)
        signal.signal(signal.SIGIO, previous)
    assert (set(unpacked(sent)), left_out(sent)) == ({"b"}, 1)


def test_later_entries_and_archives_replace_files_and_links(files: SandboxFiles, workspace: Path) -> None:
    (workspace / "target").write_text("untouched")
    (workspace / "a").symlink_to("target")
    twice = archive([("a", b"one"), ("a", b"two"), ("b", b"1"), (info("b", tarfile.SYMTYPE, "target"), b"")])
    files.trees.extract("/workspace", [twice])
    files.trees.extract("/workspace", [twice + bytes(100_000)])
    assert (workspace / "a").read_bytes() == b"two"
    assert not (workspace / "a").is_symlink()
    assert os.readlink(workspace / "b") == "target"
    assert sorted(os.listdir(workspace)) == ["a", "b", "target"]
    assert (workspace / "target").read_text() == "untouched"


@pytest.fixture
def outside(data_dir: Path) -> Path:
    path = data_dir / "outside"
    path.mkdir()
    path.chmod(0o777)
    (path / "f").write_text("secret")
    (path / "f").chmod(0o666)
    return path


def hostile(outside: Path) -> dict[str, bytes]:
    link = (info("l", tarfile.SYMTYPE, str(outside)), b"")
    upward = (info("l", tarfile.SYMTYPE, "../" * 10 + str(outside)), b"")
    chain = [(info("m", tarfile.SYMTYPE, "."), b""), (info("m/l", tarfile.SYMTYPE, str(outside)), b"")]
    return {
        "absolute": archive([(f"{outside}/new", b"x")]),
        "upwards": archive([("a/../../../x", b"x")]),
        "through a link": archive([link, ("l/new", b"x")]),
        "over a link": archive([link, ("l/f", b"x")]),
        "through an upward link": archive([upward, ("l/new", b"x")]),
        "through a chain": archive([*chain, ("l/new", b"x")]),
        "a directory over a link": archive([link, (info("l/", tarfile.DIRTYPE, mode=0o777), b"")]),
        "hard link outside": archive([(info("h", tarfile.LNKTYPE, f"{outside}/f"), b"")]),
        "hard link upwards": archive([(info("h", tarfile.LNKTYPE, "../../../../outside/f"), b"")]),
        "hard link through a link": archive([link, (info("h", tarfile.LNKTYPE, "l/f"), b"")]),
        "name too long": archive([("n" * 256, b"x")]),
        "no name": archive([("./", b"x")]),
        "a file for a directory": archive([("d/f", b"x"), ("d", b"y")]),
        "a directory for a file": archive([("d", b"x"), ("d/f", b"y")]),
    }


@pytest.mark.parametrize("what", list(hostile(Path("/x"))))
def test_hostile_archives_change_nothing_outside(
    files: SandboxFiles, workspace: Path, outside: Path, what: str
) -> None:
    with pytest.raises(FileFault) as caught:
        files.trees.extract("/workspace", pieces(hostile(outside)[what], 512))
    assert caught.value.kind in (FaultKind.ARCHIVE_INVALID, FaultKind.WRONG_KIND)
    assert tree_of(outside) == {"f": b"secret"}
    assert os.listdir(outside) == ["f"]
    assert not any(".part" in name for name in os.listdir(workspace))


def broken() -> dict[str, bytes]:
    whole = archive([("a", b"x" * 1000)])
    negative = bytearray(whole)
    negative[124:136] = b"\xff" * 12
    negative[148:156] = b"%06o\0 " % (sum(negative[:148]) + 8 * 32 + sum(negative[156:512]))
    pax = archive([(info("a", pax_headers={"size": "-5"}), b"")])
    return {
        "cut in a header": whole[:100],
        "cut in content": whole[:900],
        "no end": whole[:1536],
        "nothing": b"",
        "no tar": b"hello" * 1000,
        "damaged": whole[:10] + b"!" + whole[11:],
        "negative": bytes(negative),
        "negative in pax": pax,
        "compressed": gzip.compress(whole),
        "sparse": archive([(info("a", tarfile.GNUTYPE_SPARSE), b"")]),
        "endless name": archive([("n/" * 200_000, b"")]),
    }


@pytest.mark.parametrize("what", list(broken()))
def test_what_is_no_whole_archive_is_said(files: SandboxFiles, workspace: Path, what: str) -> None:
    with pytest.raises(FileFault) as caught:
        files.trees.extract("/workspace", pieces(broken()[what], 333))
    assert caught.value.kind is FaultKind.ARCHIVE_INVALID
    assert set(os.listdir(workspace)) <= {"a"}


def small(files: SandboxFiles, max_entries: int = 20, max_depth: int = 128, seconds: float = 60) -> SandboxTrees:
    return SandboxTrees(files, TreeLimits(10_000, TreeBounds(max_entries, max_depth, seconds)))


@pytest.mark.parametrize(
    ("entries", "bounds"),
    [
        ([(f"f{n}", b"") for n in range(21)], {}),
        ([("/".join("abcdefghijklmnop"), b"")], {"max_depth": 15}),
        ([("/".join("abcdefghijklmnopqrstuvwxyz"), b"")], {}),
        ([("a", bytes(6000)), ("b", bytes(6000))], {}),
        ([("a", b"")], {"seconds": -1}),
    ],
    ids=["entries", "depth", "implied entries", "bytes", "seconds"],
)
def test_bounds_hold_on_the_way_in(files: SandboxFiles, entries: list, bounds: dict) -> None:
    assert kind_of(lambda: small(files, **bounds).extract("/workspace", [archive(entries)])) is FaultKind.TOO_LARGE


def fill_entries(workspace: Path) -> None:
    for number in range(21):
        (workspace / f"f{number}").write_text("")


def fill_depth(workspace: Path) -> None:
    (workspace / "a/b/c/d").mkdir(parents=True)


def fill_sparse(workspace: Path) -> None:
    with (workspace / "hole").open("wb") as file:
        file.truncate(1 << 40)


SLOW = {"seconds": -1, "max_entries": 99}


@pytest.mark.parametrize(
    ("fill", "bounds"), [(fill_entries, {}), (fill_depth, {"max_depth": 2}), (fill_sparse, {}), (fill_entries, SLOW)]
)
def test_bounds_hold_on_the_way_out(
    files: SandboxFiles, workspace: Path, fill: Callable[[Path], None], bounds: dict
) -> None:
    fill(workspace)
    if "seconds" in bounds:
        for number in range(64):
            (workspace / f"g{number}").write_text("")
    subprocess.run(["chown", "-R", f"{UID}:{GID}", workspace], check=True)
    with small(files, **bounds).open_archive("/workspace") as opened:
        assert kind_of(lambda: [*opened.chunks()]) is FaultKind.TOO_LARGE
    assert not files.locks.busy


def test_depth_beyond_what_a_path_can_say(files: SandboxFiles, workspace: Path) -> None:
    name = "n" * 250
    for _ in range(100):
        os.mkdir(os.path.join(workspace, name))
        (parent := Path(workspace, name)).chmod(0o777)
        os.rename(parent, workspace / "next")
        if (workspace / "top").exists():
            os.rename(workspace / "top", workspace / "next" / name)
        os.rename(workspace / "next", workspace / "top")
    subprocess.run(["chown", "-R", f"{UID}:{GID}", workspace], check=True)
    sent = out(files)
    assert max(len(found) for found in unpacked(sent)) > 20_000
    files.delete("/workspace/top", recursive=True)
    assert files.trees.extract("/workspace", pieces(sent, 50_000)).directories == 100
    assert len(out(files)) == len(sent)
