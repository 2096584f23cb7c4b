"""Snapshots of real trees in a real object store, also where it fails or lies."""

from __future__ import annotations

import itertools
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandloom.errors import DigestMismatch, ObjectStoreUnavailable, SnapshotFailed
from sandloom.execution import template_mounts
from sandloom.execution.workspace import WorkspaceRoot
from sandloom.ids import SandboxKey
from sandloom.objects import open_object_store
from sandloom.objects.s3 import Patience, S3Store
from sandloom.sandboxes.loose import ANNOUNCED_SECONDS
from sandloom.settings import Settings
from tests.services.faulty import Fault, FaultyFront, faulty_front
from tests.services.rclone import S3Server
from workers import snapshots
from workers.homes import account_of
from workers.snapshots import Snapshots, discard

KEY = SandboxKey("default", "box")
UID = 20_123
_buckets = itertools.count(1)


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "PART_BYTES", 1 << 16)


@pytest.fixture
def settings(s3: S3Server) -> Settings:
    return Settings.load(s3.environment(f"snapshots-{next(_buckets)}"))


@pytest.fixture
def root(data_dir: Path) -> WorkspaceRoot:
    return WorkspaceRoot.open(data_dir / "a", rootless=os.geteuid() != 0)


@pytest.fixture
def other(data_dir: Path) -> WorkspaceRoot:
    return WorkspaceRoot.open(data_dir / "b", rootless=os.geteuid() != 0)


@pytest.fixture
def front(s3: S3Server) -> Iterator[FaultyFront]:
    with faulty_front(s3.port) as front:
        yield front


def of(settings: Settings, root: WorkspaceRoot) -> Snapshots:
    store = open_object_store(settings)
    assert store is not None
    return Snapshots(store, root)


def filled(root: WorkspaceRoot) -> Path:
    """A sandbox with a bit of everything; returns its workspace."""
    directories = root.create(KEY, UID, UID).directories
    top = Path(directories.workspace)
    (top / "a").write_bytes(b"one")
    (top / "a").chmod(0o640)
    os.utime(top / "a", (1_000_000_000, 1_000_000_000))
    (top / "deep" / "er").mkdir(parents=True)
    (top / "deep" / "er" / "big").write_bytes(os.urandom(3 * snapshots.PART_BYTES + 17))
    (top / "link").symlink_to("/etc/passwd")
    (top / "closed").write_bytes(b"x")
    (top / "closed").chmod(0)
    os.mkfifo(top / "fifo")
    (Path(directories.home) / ".profile").write_text("hello")
    (Path(directories.cache) / "cached").write_text("not kept")
    return top


def objects(s3: S3Server, settings: Settings) -> list[Path]:
    return s3.objects(str(settings.blobstore_bucket))


def test_a_tree_comes_back_on_another_disk(settings: Settings, root: WorkspaceRoot, other: WorkspaceRoot):
    top = filled(root)
    if os.geteuid() != 0:
        (top / "closed").chmod(0o600)
    name = of(settings, root).save(KEY)
    of(settings, other).restore(KEY, name, UID + 1, UID + 1)
    directories = other.directories(KEY)
    again = Path(directories.workspace)
    assert sorted(path.name for path in again.iterdir()) == ["a", "closed", "deep", "link"]
    found = (again / "a").stat()
    assert ((again / "a").read_bytes(), stat.S_IMODE(found.st_mode), int(found.st_mtime)) == (b"one", 0o640, 10**9)
    assert (again / "deep/er/big").read_bytes() == (top / "deep/er/big").read_bytes()
    assert os.readlink(again / "link") == "/etc/passwd"
    assert (Path(directories.home) / ".profile").read_text() == "hello"
    assert list(Path(directories.cache).iterdir()) == []
    uid, gid = account_of(UID + 1)
    owners = {(p.lstat().st_uid, p.lstat().st_gid) for p in [again, *again.rglob("*")]}
    assert owners == {(uid, gid)}


def test_attached_templates_come_along(settings: Settings, root: WorkspaceRoot, other: WorkspaceRoot):
    filled(root)
    attached = {"tools": "0" * 64}
    template_mounts.remember(root.directories(KEY), attached)
    name = of(settings, root).save(KEY)
    of(settings, other).restore(KEY, name, UID, UID)
    assert template_mounts.remembered(other.directories(KEY)) == attached


def test_a_restore_replaces_what_is_there(settings: Settings, root: WorkspaceRoot):
    top = filled(root)
    saved = of(settings, root)
    name = saved.save(KEY)
    (top / "later").write_text("not in the snapshot")
    saved.restore(KEY, name, UID, UID)
    assert not (top / "later").exists()
    assert (top / "a").exists()
    assert saved.is_there(KEY, name)


def test_one_that_takes_too_long_is_given_up_before_others_remove_it(
    settings: Settings, s3: S3Server, root: WorkspaceRoot, monkeypatch: pytest.MonkeyPatch
):
    """Maintenance takes it for left behind after so long: from then on nothing more may get into the store."""
    filled(root)
    if os.geteuid() != 0:
        (Path(root.directories(KEY).workspace) / "closed").chmod(0o600)
    assert snapshots.MAX_SECONDS == 110 * 60 < ANNOUNCED_SECONDS
    saved = of(settings, root)
    first = saved.save(KEY)
    kept = objects(s3, settings)
    monkeypatch.setattr(snapshots, "MAX_SECONDS", -1)
    for begin in (lambda: saved.save(KEY), lambda: saved.duplicate(KEY, first, SandboxKey("default", "copy"), "token")):
        with pytest.raises(ObjectStoreUnavailable, match="took too long"):
            begin()
    assert objects(s3, settings) == kept


def test_a_snapshot_is_discarded_and_others_stay(settings: Settings, s3: S3Server, root: WorkspaceRoot):
    filled(root)
    saved = of(settings, root)
    first, second = saved.save(KEY), saved.save(KEY)
    saved.discard(KEY, first)
    assert not saved.is_there(KEY, first)
    assert saved.is_there(KEY, second)
    store = open_object_store(settings)
    assert store is not None
    discard(store, KEY, second)
    assert objects(s3, settings) == []


@pytest.mark.parametrize("name", ["manifest.json", "workspace.tar.zst", "home.tar.zst"])
def test_damage_is_refused_and_leaves_nothing(
    settings: Settings, s3: S3Server, root: WorkspaceRoot, other: WorkspaceRoot, name: str
):
    filled(root)
    snapshot = of(settings, root).save(KEY)
    (path,) = [path for path in objects(s3, settings) if path.name == name]
    whole = path.read_bytes()
    for damaged in (whole[:-1] + bytes([whole[-1] ^ 1]), whole[:-1], whole + b"more"):
        path.write_bytes(damaged)
        with pytest.raises(DigestMismatch):
            of(settings, other).restore(KEY, snapshot, UID, UID)
        assert not other.exists(KEY)
        assert list(other.path.glob(".trash/*")) == []
    path.unlink()
    with pytest.raises(DigestMismatch):
        of(settings, other).restore(KEY, snapshot, UID, UID)
    assert not of(settings, other).is_there(KEY, snapshot)


def test_another_snapshot_of_the_same_form_is_refused(settings: Settings, root: WorkspaceRoot):
    filled(root)
    saved = of(settings, root)
    first, second = saved.save(KEY), saved.save(KEY)
    mixed = f"{first.partition('.')[0]}.{second.partition('.')[2]}"
    if mixed != first:
        with pytest.raises(DigestMismatch):
            saved.restore(KEY, mixed, UID, UID)


def test_a_store_that_fails_in_the_middle_leaves_nothing(
    settings: Settings, s3: S3Server, root: WorkspaceRoot, other: WorkspaceRoot, front: FaultyFront
):
    filled(root)
    snapshot = of(settings, root).save(KEY)
    behind = Settings.load(s3.environment(str(settings.blobstore_bucket), front.endpoint))
    unsteady = Snapshots(S3Store.of(behind, Patience(attempts=1)), other)
    front.fault = Fault("GET", cut_after=10_000)
    with pytest.raises((ObjectStoreUnavailable, DigestMismatch)):
        unsteady.restore(KEY, snapshot, UID, UID)
    front.fault = Fault("GET", flip=True)
    with pytest.raises(DigestMismatch):
        unsteady.restore(KEY, snapshot, UID, UID)
    assert not other.exists(KEY)
    front.fault = Fault("PUT", status=500)
    before = objects(s3, settings)
    with pytest.raises(ObjectStoreUnavailable):
        Snapshots(S3Store.of(behind, Patience(attempts=1)), root).save(KEY)
    assert objects(s3, settings) == before


def test_what_is_too_deep_is_not_kept_in_part(settings: Settings, s3: S3Server, root: WorkspaceRoot):
    top = filled(root)
    at = top
    for _ in range(snapshots.BOUNDS.max_depth + 2):
        at = at / "d"
        at.mkdir()
    with pytest.raises(SnapshotFailed):
        of(settings, root).save(KEY)
    assert not any(path.name == "manifest.json" for path in objects(s3, settings))
