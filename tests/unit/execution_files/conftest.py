"""A workspace root and a sandbox in it: as root with a uid of its own, else with the own uid."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandloom.execution import archive_native, openat
from sandloom.execution.files import FileLimits, SandboxFiles
from sandloom.execution.native import build, library
from sandloom.execution.workspace import WorkspaceRoot
from tests.services.account import remove_tree
from tests.services.need import missing
from tests.unit.execution_files.people import GID, ROOTLESS, UID

KEY = ("default", "box")


@pytest.fixture
def root(data_dir: Path) -> Iterator[WorkspaceRoot]:
    yield from _root(data_dir)


@pytest.fixture
def quick_root() -> Iterator[WorkspaceRoot]:
    """In memory where that can be had, for tests that make thousands of directories."""
    path = Path(tempfile.mkdtemp(prefix="sandloom-test-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else "/tmp"))
    path.chmod(0o711)
    yield from _root(path)
    remove_tree(path)


def _root(path: Path) -> Iterator[WorkspaceRoot]:
    opened = WorkspaceRoot.open(path / "root", rootless=ROOTLESS)
    yield opened
    # Trees here may be deeper than a recursive removal can follow.
    for key in list(opened.keys()):
        opened.delete(key)
    opened.trash.join()
    opened.empty_trash()


@pytest.fixture
def files(root: WorkspaceRoot) -> SandboxFiles:
    directories = root.create(KEY, UID, GID).directories
    return SandboxFiles(directories, UID, GID, root.trash, FileLimits(max_file_bytes=1 << 20))


@pytest.fixture
def workspace(root: WorkspaceRoot, files: SandboxFiles) -> Path:
    """The sandbox's ``/workspace`` as seen from the host."""
    return Path(root.directories(KEY).workspace)


@pytest.fixture
def compiled() -> None:
    if build.build(library.ARCHIVE_SOURCE) is None:
        missing("a C compiler")
    archive_native.load.cache_clear()
    assert archive_native.load() is not None


@pytest.fixture(params=["compiled", "plain"])
def walking(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what the kernel and a C compiler make possible, and without."""
    if request.param == "plain":
        monkeypatch.setattr(openat, "HAVE_OPENAT2", False)
        monkeypatch.setattr(archive_native, "load", lambda: None)
    else:
        request.getfixturevalue("compiled")
        if not openat.HAVE_OPENAT2:
            pytest.skip("this kernel has no openat2")
