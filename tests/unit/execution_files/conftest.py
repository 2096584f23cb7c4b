"""A workspace root and a sandbox in it: as root with a uid of its own, else with the own uid."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sandloom.execution.files import FileLimits, SandboxFiles
from sandloom.execution.workspace import WorkspaceRoot
from tests.unit.execution_files.people import GID, ROOTLESS, UID

KEY = ("default", "box")


@pytest.fixture
def root(data_dir: Path) -> Iterator[WorkspaceRoot]:
    opened = WorkspaceRoot.open(data_dir / "root", rootless=ROOTLESS)
    yield opened
    # Trees here may be deeper than a recursive removal can follow.
    for key in list(opened.keys()):
        opened.delete(key)
    opened.empty_trash()


@pytest.fixture
def files(root: WorkspaceRoot) -> SandboxFiles:
    directories = root.create(KEY, UID, GID).directories
    return SandboxFiles(directories, UID, GID, root.trash, FileLimits(max_file_bytes=1 << 20))


@pytest.fixture
def workspace(root: WorkspaceRoot, files: SandboxFiles) -> Path:
    """The sandbox's ``/workspace`` as seen from the host."""
    return Path(root.directories(KEY).workspace)
