"""The uids of a worker that is down stay its own while sandboxes with them are on its disk."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from sandloom.execution.accounts import Accounts
from sandloom.execution.locks import LockHeld, NoUidBlock, UidBlock
from sandloom.execution.uid_claims import note
from sandloom.execution.workspace import WorkspaceRoot

NOBODY = Accounts(frozenset(), (), ask_system=False)
KEY = ("default", "box")


def root(path: Path) -> WorkspaceRoot:
    return WorkspaceRoot.open(path, rootless=True)


def started(found: WorkspaceRoot, lock_dir: Path, preferred: int | None = None) -> UidBlock:
    """What a worker does at its start."""
    claims = found.other_uid_claims(lock_dir)
    block = UidBlock.acquire(20000, 20029, 10, preferred, lock_dir, NOBODY, claims)
    found.record_uid_block(block.start)
    note(lock_dir, found.uid_claim(block.start, block.end))
    return block


def test_nobody_takes_the_block_of_a_worker_that_is_down(data_dir: Path) -> None:
    lock_dir, mine, theirs = data_dir / "l", root(data_dir / "mine"), root(data_dir / "theirs")
    started(mine, lock_dir).close()
    mine.create(KEY, 20000, 20000)
    assert started(theirs, lock_dir).start == 20010
    with pytest.raises(LockHeld, match=f"is kept for the sandboxes in {data_dir}/mine"):
        started(theirs, lock_dir, 20005)
    again = UidBlock.acquire(20000, 20029, 10, mine.uid_block_start, lock_dir, NOBODY)
    assert again.start == 20000


def test_a_start_of_another_worker_in_between_forgets_nothing(data_dir: Path) -> None:
    lock_dir, mine, theirs = data_dir / "l", root(data_dir / "mine"), root(data_dir / "theirs")
    block = started(mine, lock_dir)
    started(theirs, lock_dir).close()
    mine.create(KEY, 20000, 20000)
    block.close()
    assert [claim.start for claim in theirs.other_uid_claims(lock_dir)] == [20000]


@pytest.mark.parametrize("end", ["released", "removed", "given another block"])
def test_the_block_is_free_once_nothing_has_its_uids(data_dir: Path, end: str) -> None:
    lock_dir, mine, theirs = data_dir / "l", root(data_dir / "mine"), root(data_dir / "theirs")
    started(mine, lock_dir).close()
    mine.create(KEY, 20000, 20000)
    if end == "released":
        mine.delete(KEY)
    elif end == "removed":
        shutil.rmtree(data_dir / "mine")
    else:
        mine.record_uid_block(20020)
    assert theirs.other_uid_claims(lock_dir) == []
    assert started(theirs, lock_dir).start == 20000


def test_without_a_free_block_the_error_names_the_disk(data_dir: Path) -> None:
    lock_dir = data_dir / "l"
    for name in ("a", "b", "c"):
        found = root(data_dir / name)
        started(found, lock_dir).close()
        found.create(KEY, 20000, 20000)
    with pytest.raises(NoUidBlock, match=f"is kept for the sandboxes in {data_dir}/b"):
        started(root(data_dir / "d"), lock_dir)
