"""A command swaps a directory for a link to the outside, at full speed, while every call works below it.

``SANDBOX_TEST_SWAP_SECONDS`` makes each case take so long instead of ending as soon as both sides were seen.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sandloom.execution.file_faults import FaultKind, FileFault
from sandloom.execution.files import SandboxFiles
from sandloom.execution.workspace import WorkspaceRoot
from tests.unit.execution_files.archives import archive, unpacked
from tests.unit.execution_files.people import GID, UID, program, tree_of
from workers.patterns import line_search

pytestmark = pytest.mark.usefixtures("walking")

SECONDS = float(os.environ.get("SANDBOX_TEST_SWAP_SECONDS", "0"))
SECRETS = {"f": b"secret", "sub/f": b"secret"}
TREE = archive([("f", b"mine"), ("new/g", b"mine"), ("new/f", b"mine")])
SEARCH = line_search("secret|mine")

SWAPPER = """
import ctypes, os, sys, threading
libc = ctypes.CDLL(None, use_errno=True)
os.chdir(sys.argv[1])
done = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), done.set()), daemon=True).start()
print("ready", flush=True)
while not done.is_set():
    for _ in range(60):
        libc.renameat2(-100, b"d", -100, b"link", 2)
"""


@pytest.fixture
def outside(data_dir: Path) -> Path:
    """A directory that every user may read and write: only the walk protects it."""
    path = data_dir / "outside"
    (path / "sub").mkdir(parents=True)
    for name in ("f", "sub/f"):
        (path / name).write_text("secret")
        (path / name).chmod(0o666)
    for name in ("", "sub"):
        (path / name).chmod(0o777)
    return path


def archived(files: SandboxFiles, path: str) -> set[bytes]:
    with files.trees.open_archive(path) as opened:
        found = unpacked(b"".join(opened.chunks()))
    return {content for _, content, _ in found.values() if content}


def calls(files: SandboxFiles, path: str, target: bytes) -> list[tuple[Callable[[], object], Callable[[object], bool]]]:
    """Each call, and whether what it answers is of the sandbox."""
    top = "/workspace"
    return [
        (lambda: files.read(f"{path}/f"), lambda found: found == b"mine"),
        (lambda: files.write(f"{path}/f", b"mine"), lambda found: found == 4),
        (lambda: {entry.name for entry in files.listing(path, 10).entries}, lambda found: "f" in found),
        (lambda: files.mkdir(f"{path}/made", parents=True), lambda found: found in (True, False)),
        (lambda: files.delete(f"{path}/made", recursive=True), lambda found: found is None),
        (lambda: files.stat(f"{path}/f").size_bytes, lambda found: found == 4),
        (lambda: files.replace(f"{path}/f", b"mine", b"mine"), lambda found: found == (1, 4)),
        (lambda: files.trees.extract(path, [TREE]).files, lambda found: found == 3),
        (lambda: archived(files, top), lambda found: found <= {b"mine", target}),
        (
            lambda: {match.text for match in files.trees.grep(top, SEARCH, None, 100).matches},
            lambda found: found <= {"mine"},
        ),
        (
            lambda: {entry.size_bytes for entry in files.trees.glob(top, "**/f", 100).entries},
            lambda found: found <= {4},
        ),
    ]


@pytest.mark.timeout(SECONDS * 2 + 300)
@pytest.mark.parametrize("below", ["", "/sub"])
@pytest.mark.parametrize("depth", ["d", "top/d"])
def test_swapping_a_directory_for_a_link_reaches_nothing_outside(
    files: SandboxFiles, workspace: Path, outside: Path, root: WorkspaceRoot, depth: str, below: str
) -> None:
    base = (workspace / depth).parent
    path = f"/workspace/{depth}{below}"
    files.mkdir(path, parents=True)
    files.write(f"{path}/f", b"mine")
    (base / "link").symlink_to(outside)
    subprocess.run(["chown", "-h", f"{UID}:{GID}", base / "link"], check=True)
    every = calls(files, path, os.fsencode(outside))
    seen: set[tuple[int, object]] = set()
    wanted = {(number, "done") for number in range(len(every))} | {(0, FaultKind.WRONG_KIND), (1, FaultKind.WRONG_KIND)}
    until = time.monotonic() + SECONDS
    with program(SWAPPER, str(base), uid=UID):
        for _ in range(100_000):
            for number, (call, is_mine) in enumerate(every):
                try:
                    found = call()
                except FileFault as fault:
                    seen.add((number, fault.kind))
                    continue
                assert is_mine(found), (number, found)
                seen.add((number, "done"))
            if wanted <= seen and time.monotonic() >= until:
                break
    assert wanted <= seen
    root.trash.join()
    assert tree_of(outside) == SECRETS
    assert (os.listdir(outside / "sub"), sorted(os.listdir(outside))) == (["f"], ["f", "sub"])
