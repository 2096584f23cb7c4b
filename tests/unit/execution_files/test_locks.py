from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

import pytest

from sandloom.execution.accounts import Accounts
from sandloom.execution.locks import LockHeld, LockUnusable, NoUidBlock, RootLock, UidBlock
from tests.unit.execution_files.people import in_child, program

NOBODY = Accounts(frozenset(), (), ask_system=False)

HOLD_ROOT = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from sandloom.execution.locks import RootLock
lock = RootLock.acquire(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""
CHECKOUT = str(Path(__file__).parents[3])


def test_a_root_has_one_worker(data_dir: Path) -> None:
    path = data_dir / "lock"
    with program(HOLD_ROOT, str(path), CHECKOUT) as holder:
        with pytest.raises(LockHeld, match=f"process {holder.pid} "):
            RootLock.acquire(path)
        assert not in_child(lambda: RootLock.acquire(path))
    RootLock.acquire(path, wait_seconds=10).close()


def test_a_killed_holder_frees_the_lock_for_a_waiter(data_dir: Path) -> None:
    path = data_dir / "lock"
    with program(HOLD_ROOT, str(path), CHECKOUT) as holder:
        holder.kill()
        with RootLock.acquire(path, wait_seconds=30) as lock:
            assert lock.fileno() >= 0


def test_a_child_that_inherited_the_lock_holds_it_alone(data_dir: Path) -> None:
    path = data_dir / "lock"
    lock = RootLock.acquire(path)
    lock.set_inheritable(True)
    child = subprocess.Popen(["cat"], stdin=subprocess.PIPE, close_fds=True, pass_fds=[lock.fileno()])
    lock.close()
    try:
        with pytest.raises(LockHeld):
            RootLock.acquire(path)
    finally:
        child.communicate()
    RootLock.acquire(path).close()


def test_programs_do_not_inherit_the_lock_unasked(data_dir: Path) -> None:
    path = data_dir / "lock"
    lock = RootLock.acquire(path)
    child = subprocess.Popen(["cat"], stdin=subprocess.PIPE, close_fds=False)
    lock.close()
    try:
        # The kernel closes what a program does not inherit a moment after its start.
        RootLock.acquire(path, wait_seconds=30).close()
    finally:
        child.communicate()


def test_a_lock_file_that_was_replaced_is_locked_anew(data_dir: Path) -> None:
    path = data_dir / "lock"
    with RootLock.acquire(path):
        path.unlink()
        with RootLock.acquire(path) as fresh:
            assert os.path.samestat(os.stat(path), os.fstat(fresh.fileno()))


def test_a_link_is_no_lock_file(data_dir: Path) -> None:
    (data_dir / "lock").symlink_to(data_dir / "elsewhere")
    with pytest.raises(LockUnusable):
        RootLock.acquire(data_dir / "lock")
    assert not (data_dir / "elsewhere").exists()


def test_blocks_of_one_host_are_disjoint(data_dir: Path) -> None:
    blocks = [UidBlock.acquire(20000, 20099, 32, None, data_dir / "l", NOBODY) for _ in range(3)]
    assert [(block.start, block.end) for block in blocks] == [(20000, 20031), (20032, 20063), (20064, 20095)]
    with pytest.raises(NoUidBlock, match=r"20032\.\.20063 is held by another worker.*widen the range"):
        UidBlock.acquire(20000, 20099, 32, None, data_dir / "l", NOBODY)
    blocks[1].close()
    assert UidBlock.acquire(20000, 20099, 32, None, data_dir / "l", NOBODY).start == 20032


def test_blocks_of_different_sizes_and_starts_never_overlap(data_dir: Path) -> None:
    sizes = [(20000, 10), (20005, 7), (20003, 25), (20000, 3), (20011, 1), (20000, 40)]
    blocks = [UidBlock.acquire(start, 20400, size, None, data_dir / "l", NOBODY) for start, size in sizes]
    uids = [uid for block in blocks for uid in range(block.start, block.end + 1)]
    assert len(uids) == len(set(uids)) == sum(size for _, size in sizes)


def test_a_block_is_free_when_its_process_is_gone(data_dir: Path) -> None:
    assert in_child(lambda: UidBlock.acquire(20000, 20009, 10, None, data_dir / "l", NOBODY))
    assert UidBlock.acquire(20000, 20009, 10, None, data_dir / "l", NOBODY).start == 20000


def test_a_child_that_inherited_a_block_holds_it(data_dir: Path) -> None:
    block = UidBlock.acquire(20000, 20009, 10, None, data_dir / "l", NOBODY)
    block.set_inheritable(True)
    child = subprocess.Popen(["cat"], stdin=subprocess.PIPE, pass_fds=[block.fileno()])
    block.close()
    try:
        with pytest.raises(NoUidBlock):
            UidBlock.acquire(20000, 20009, 10, None, data_dir / "l", NOBODY)
    finally:
        child.communicate()


def test_the_recorded_block_is_taken_again(data_dir: Path) -> None:
    assert UidBlock.acquire(20000, 29999, 100, 20300, data_dir / "l", NOBODY).start == 20300


def test_a_recorded_block_of_another_worker_is_an_error(data_dir: Path) -> None:
    with (
        UidBlock.acquire(20000, 29999, 100, 20350, data_dir / "l", NOBODY),
        pytest.raises(LockHeld, match=r"20300\.\.20399 .*stop that worker, or remove the file 'uid_block'"),
    ):
        UidBlock.acquire(20000, 29999, 100, 20300, data_dir / "l", NOBODY)


def test_a_recorded_block_that_an_account_moved_into_is_an_error(data_dir: Path) -> None:
    with pytest.raises(NoUidBlock, match="20310 is the id of an account"):
        UidBlock.acquire(20000, 29999, 100, 20300, data_dir / "l", Accounts(frozenset({20310}), (), ask_system=False))


def test_a_recorded_block_outside_the_range_is_given_up(data_dir: Path) -> None:
    assert UidBlock.acquire(30000, 39999, 100, 20300, data_dir / "l", NOBODY).start == 30000


def test_blocks_with_accounts_or_subordinate_ids_are_skipped(data_dir: Path) -> None:
    accounts = Accounts(frozenset({20000, 20015}), ((20020, 20034),), ask_system=False)
    assert UidBlock.acquire(20000, 20099, 10, None, data_dir / "l", accounts).start == 20040


def test_the_real_accounts_of_this_host_are_known(data_dir: Path) -> None:
    accounts = Accounts.read()
    assert accounts.conflict(0, 0) == "0 is the id of an account or group"
    assert accounts.conflict(65530, 65534)
    with pytest.raises(NoUidBlock, match="65534 is the id"):
        UidBlock.acquire(65534, 65534, 1, None, data_dir / "l")


@pytest.mark.parametrize(("start", "end", "size"), [(0, 100, 10), (200, 100, 1), (100, 105, 7), (100, 200, 0)])
def test_a_range_that_cannot_work_is_refused(data_dir: Path, start: int, end: int, size: int) -> None:
    with pytest.raises(NoUidBlock, match="SANDBOX_UID_START"):
        UidBlock.acquire(start, end, size, None, data_dir / "l", NOBODY)


def test_the_lock_directory_is_private(data_dir: Path) -> None:
    UidBlock.acquire(20000, 29999, 100, None, data_dir / "l", NOBODY)
    assert stat.S_IMODE((data_dir / "l").stat().st_mode) == 0o700


def test_an_untrustworthy_lock_directory_is_refused(data_dir: Path) -> None:
    (data_dir / "real").mkdir(mode=0o700)
    (data_dir / "link").symlink_to(data_dir / "real")
    (data_dir / "open").mkdir()
    (data_dir / "open").chmod(0o755)
    (data_dir / "file").write_text("")
    for name in ("link", "open", "file", "missing/l"):
        with pytest.raises(LockUnusable):
            UidBlock.acquire(20000, 29999, 100, None, data_dir / name, NOBODY)
    assert os.listdir(data_dir / "real") == []


@pytest.mark.root
def test_a_lock_directory_of_someone_else_is_refused(data_dir: Path) -> None:
    (data_dir / "l").mkdir(mode=0o700)
    os.chown(data_dir / "l", 61001, 61001)
    with pytest.raises(LockUnusable, match="must be a directory of uid 0"):
        UidBlock.acquire(20000, 29999, 100, None, data_dir / "l", NOBODY)


@pytest.mark.root
def test_a_lock_directory_below_an_open_one_is_refused(data_dir: Path) -> None:
    data_dir.chmod(0o777)
    try:
        with pytest.raises(LockUnusable, match="writable by everyone"):
            UidBlock.acquire(20000, 29999, 100, None, data_dir / "l", NOBODY)
    finally:
        data_dir.chmod(0o711)
