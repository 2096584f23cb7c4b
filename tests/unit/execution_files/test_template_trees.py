"""Archives of templates, and the cache in which they are unpacked."""

from __future__ import annotations

import hashlib
import io
import os
import stat
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sandloom.execution.file_faults import FaultKind, FileFault
from sandloom.execution.openat import SCAN_FLAGS
from sandloom.execution.template_archive import TemplateArchive
from sandloom.execution.template_cache import TemplateCache, TemplateLimits
from sandloom.execution.tree_walk import TreeBounds

BOUNDS = TreeBounds(max_entries=1000, max_depth=8, seconds=30)
LIMITS = TemplateLimits(1 << 24, 1 << 24, BOUNDS)


def archived(tree: Path, bounds: TreeBounds = BOUNDS, max_bytes: int = 1 << 24) -> bytes:
    fd = os.open(tree, SCAN_FLAGS)
    try:
        return b"".join(TemplateArchive(fd, bounds, max_bytes).chunks())
    finally:
        os.close(fd)


def digest_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    top = tmp_path / "tree"
    (top / "bin").mkdir(parents=True)
    (top / "bin" / "run").write_text("#!/bin/sh\necho ran\n")
    (top / "bin" / "run").chmod(0o700)
    (top / "data").write_bytes(bytes(range(256)) * 3000)
    (top / "link").symlink_to("bin/run")
    (top / ("n" * 200)).write_text("long")
    (top / "empty").mkdir()
    return top


@pytest.fixture
def cache(tmp_path: Path) -> TemplateCache:
    return TemplateCache(tmp_path / "cache", LIMITS)


def test_the_same_tree_gives_the_same_bytes_whoever_when_and_in_whatever_order(tree: Path, tmp_path: Path):
    other = tmp_path / "other"
    other.mkdir(mode=0o700)
    (other / "link").symlink_to("bin/run")
    (other / "empty").mkdir(mode=0o700)
    (other / ("n" * 200)).write_text("long")
    (other / "data").write_bytes((tree / "data").read_bytes())
    (other / "data").chmod(0o600)
    (other / "bin").mkdir()
    (other / "bin" / "run").write_text("#!/bin/sh\necho ran\n")
    (other / "bin" / "run").chmod(0o755)
    os.utime(other / "data", (1, 1))
    if os.geteuid() == 0:
        os.chown(other / "data", 12345, 12345)
    os.mkfifo(other / "fifo")
    assert archived(other) == archived(tree)
    (other / "bin" / "run").chmod(0o644)
    assert archived(other) != archived(tree)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.from_regex(rb"[a-z\xff.]{1,3}x", fullmatch=True), st.binary(max_size=2000), max_size=6))
def test_what_is_unpacked_gives_the_same_archive_again(tmp_path_factory: pytest.TempPathFactory, files):
    base = tmp_path_factory.mktemp("p")
    top = base / "tree"
    top.mkdir()
    for name, data in files.items():
        (top / os.fsdecode(name)).write_bytes(data)
    data = archived(top)
    cache = TemplateCache(base / "cache", LIMITS)
    cache.put(digest_of(data), [data])
    assert archived(Path(cache.path(digest_of(data)))) == data


def test_an_unpacked_tree_is_the_services_and_only_readable_for_others(tree: Path, cache: TemplateCache):
    data = archived(tree)
    cache.put(digest_of(data), [data[at : at + 1000] for at in range(0, len(data), 1000)])
    made = Path(cache.path(digest_of(data)))
    assert cache.has(digest_of(data))
    assert (made / "link").readlink() == Path("bin/run")
    for path in (made, *made.rglob("*")):
        found = path.lstat()
        assert found.st_uid == os.geteuid()
        assert path.is_symlink() or stat.S_IMODE(found.st_mode) in (0o644, 0o755)
    assert list(cache.staging.iterdir()) == []


@pytest.mark.parametrize(
    "harm", [lambda data: data[:-700], lambda data: data[:600] + b"?" + data[601:], lambda data: b""]
)
def test_a_damaged_archive_is_refused_and_leaves_nothing(
    tree: Path, cache: TemplateCache, harm: Callable[[bytes], bytes]
):
    data = archived(tree)
    with pytest.raises(FileFault) as refused:
        cache.put(digest_of(data), [harm(data)])
    assert refused.value.kind is FaultKind.ARCHIVE_INVALID
    assert not cache.has(digest_of(data))
    assert list(cache.staging.iterdir()) == []


def hostile(name: str, **fields: object) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        member = tarfile.TarInfo(name)
        for field, value in fields.items():
            setattr(member, field, value)
        archive.addfile(member)
    return target.getvalue()


HOSTILE = {
    "upwards": hostile("../out"),
    "absolute": hostile("/etc/out"),
    "a device": hostile("device", type=tarfile.CHRTYPE),
    "a FIFO": hostile("fifo", type=tarfile.FIFOTYPE),
    "a hard link": hostile("hard", type=tarfile.LNKTYPE, linkname="../../x"),
    "setuid": hostile("setuid", mode=0o4755),
    "writable": hostile("open", mode=0o666),
    "an owner": hostile("owned", mode=0o644, uid=7),
    "a time": hostile("later", mode=0o644, mtime=5),
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_an_archive_that_no_template_has_is_refused_though_its_digest_is_right(cache: TemplateCache, data: bytes):
    with pytest.raises(FileFault) as refused:
        cache.put(digest_of(data), [data])
    assert refused.value.kind is FaultKind.ARCHIVE_INVALID
    assert not cache.has(digest_of(data))


def test_a_way_through_a_link_of_the_archive_is_refused(cache: TemplateCache, tmp_path: Path):
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        link = tarfile.TarInfo("a")
        link.type, link.linkname = tarfile.SYMTYPE, str(tmp_path)
        archive.addfile(link)
        archive.addfile(tarfile.TarInfo("a/out"))
    with pytest.raises(FileFault):
        cache.put(digest_of(target.getvalue()), [target.getvalue()])
    assert not (tmp_path / "out").exists()


def test_bounds_hold_for_building_and_unpacking(tree: Path, cache: TemplateCache, tmp_path: Path):
    for bounds, max_bytes, word in (
        (TreeBounds(3, 8, 30), 1 << 24, "entries"),
        (TreeBounds(1000, 0, 30), 1 << 24, "deep"),
        (BOUNDS, 1000, "bytes"),
    ):
        with pytest.raises(FileFault, match=word) as refused:
            archived(tree, bounds, max_bytes)
        assert refused.value.kind is FaultKind.TOO_LARGE
    data = archived(tree)
    for limits in (TemplateLimits(1000, 1 << 24, BOUNDS), TemplateLimits(1 << 24, 1000, BOUNDS)):
        small = TemplateCache(tmp_path / f"small-{limits.max_archive_bytes}", limits)
        with pytest.raises(FileFault) as refused:
            small.put(digest_of(data), [data])
        assert refused.value.kind is FaultKind.TOO_LARGE


def test_a_tree_that_was_changed_is_not_used_in_the_next_life_of_the_worker(tree: Path, tmp_path: Path):
    data = archived(tree)
    before = TemplateCache(tmp_path / "cache", LIMITS)
    before.put(digest_of(data), [data])
    (Path(before.path(digest_of(data))) / "bin" / "run").write_text("#!/bin/sh\necho evil\n")
    after = TemplateCache(tmp_path / "cache", LIMITS)
    assert not after.has(digest_of(data))
    after.put(digest_of(data), [data])
    assert "ran" in (Path(after.path(digest_of(data))) / "bin" / "run").read_text()


def test_the_longest_unused_goes_first_and_one_in_use_never(tmp_path: Path):
    cache = TemplateCache(tmp_path / "cache", TemplateLimits(1 << 24, 1 << 24, BOUNDS, cache_bytes=1))
    digests = []
    for number in range(3):
        top = tmp_path / f"tree-{number}"
        top.mkdir()
        (top / "data").write_bytes(bytes([number]) * 5000)
        data = archived(top)
        digests.append(digest_of(data))
        cache.put(digests[-1], [data])
        os.utime(cache.path(digests[-1]), (number, number))
    with cache.using([digests[0]]):
        assert cache.shrink() == [digests[1], digests[2]]
        assert cache.has(digests[0])
    assert cache.shrink() == [digests[0]]
    assert not cache.has(digests[0])
