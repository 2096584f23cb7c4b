"""Locks between the processes of one host: a root's lock and a worker's block of uids.

Both are held by an open file description, so that a child that inherits the descriptor holds them too: they are free
only when every holder is gone, however it ended.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import stat
import struct
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from sandloom.execution.accounts import Accounts
from sandloom.execution.spec import ExecutionError
from sandloom.execution.uid_claims import Claim

_POLL_SECONDS = 0.05
_FLOCK = struct.Struct("@hhqqi4x")  # struct flock of 64-bit Linux: type, whence, start, length, pid


class LockHeld(ExecutionError):
    """Someone else holds the lock; the message says who and what to do."""


class LockUnusable(ExecutionError):
    """The lock's file or directory cannot be trusted or opened."""


class NoUidBlock(ExecutionError):
    """No block of uids can be had; the message says what to do."""


class _Held:
    """A lock that lives as long as the descriptor is open somewhere."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def fileno(self) -> int:
        return self._fd

    def set_inheritable(self, inheritable: bool) -> None:
        """Whether programs that this process starts get the descriptor, and hold the lock too."""
        os.set_inheritable(self._fd, inheritable)

    def close(self) -> None:
        """Lets go; a child that inherited the lock still holds it. Never unlocks explicitly, which would end both."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class RootLock(_Held):
    """Says that the worker of a root, or its spawner, lives."""

    @classmethod
    def acquire(cls, path: Path, *, wait_seconds: float = 0) -> RootLock:
        """Waits at most ``wait_seconds``. Raises LockHeld and LockUnusable."""
        deadline = time.monotonic() + wait_seconds
        while True:
            fd = _open_lock(path)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _is_still(path, fd):
                    _sign(fd)
                    return cls(fd)
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    holder = _holder(fd)
                    os.close(fd)
                    raise LockHeld(
                        f"{path} is held by {holder}; stop that worker, or give this one another workspace root"
                    ) from None
                # The kernel has no wait for flock with a time limit.
                time.sleep(_POLL_SECONDS)
            os.close(fd)


class UidBlock(_Held):
    """A range of uids that no other worker of this host uses."""

    def __init__(self, fd: int, start: int, size: int) -> None:
        super().__init__(fd)
        self.start = start
        self.size = size

    @property
    def end(self) -> int:
        """The last uid of the block."""
        return self.start + self.size - 1

    def __contains__(self, uid: int) -> bool:
        return self.start <= uid <= self.end

    @classmethod
    def acquire(
        cls,
        uid_start: int,
        uid_end: int,
        size: int,
        preferred: int | None,
        lock_dir: Path,
        accounts: Accounts | None = None,
        claims: Sequence[Claim] = (),
    ) -> UidBlock:
        """``size`` uids of ``uid_start..uid_end`` (inclusive) that belong to no account, no subordinate range, no other
        worker, and none of ``claims``, which are of workers that may be down. ``preferred``, the first uid of the block
        the root's sandboxes have, is that one or an error, unless it lies outside the range: then the setting was
        changed and a new block is taken.

        Raises NoUidBlock, LockHeld and LockUnusable.
        """
        taken = accounts or Accounts.read()
        if not (uid_start >= 1 and size >= 1 and uid_end - uid_start + 1 >= size):
            raise NoUidBlock(f"{size} uids do not fit into SANDBOX_UID_START..SANDBOX_UID_END = {uid_start}..{uid_end}")
        fd = _open_lock(_checked_directory(lock_dir) / "uids")
        try:
            start = _choose(fd, uid_start, uid_end, size, preferred, taken, claims)
        except BaseException:
            os.close(fd)
            raise
        return cls(fd, start, size)


def _choose(
    fd: int,
    uid_start: int,
    uid_end: int,
    size: int,
    preferred: int | None,
    accounts: Accounts,
    claims: Sequence[Claim],
) -> int:
    if preferred is not None and uid_start <= preferred and preferred + size - 1 <= uid_end:
        _demand(fd, preferred, size, accounts, claims)
        return preferred
    conflicts = []
    start = uid_start
    while start + size - 1 <= uid_end:
        conflict = accounts.conflict(start, start + size - 1) or _claimed(claims, start, start + size - 1)
        if conflict is None and _lock_range(fd, start, size):
            return start
        conflicts.append(conflict or f"{start}..{start + size - 1} is held by another worker")
        start += size
    shown = "; ".join(conflicts[:5]) + ("; …" if len(conflicts) > 5 else "")
    raise NoUidBlock(
        f"no block of {size} uids is free in SANDBOX_UID_START..SANDBOX_UID_END = {uid_start}..{uid_end} ({shown}); "
        "widen the range, or lower SANDBOX_WORKER_CAPACITY"
    )


def _claimed(claims: Sequence[Claim], start: int, end: int) -> str | None:
    claim = next((claim for claim in claims if claim.overlaps(start, end)), None)
    return None if claim is None else f"{claim.start}..{claim.end} is kept for the sandboxes in {claim.sandboxes}"


def _demand(fd: int, start: int, size: int, accounts: Accounts, claims: Sequence[Claim]) -> None:
    end = start + size - 1
    claimed = _claimed(claims, start, end)
    if claimed is not None:
        raise LockHeld(f"the uids {start}..{end} cannot be used: {claimed}")
    conflict = accounts.conflict(start, end)
    if conflict is not None:
        raise NoUidBlock(
            f"the sandboxes of this root use the uids {start}..{end}, but {conflict}; remove that account or range, "
            "or remove the file 'uid_block' of the root so that the sandboxes are given other uids"
        )
    if not _lock_range(fd, start, size):
        raise LockHeld(
            f"the uids {start}..{end} of this root's sandboxes are in use by another worker on this host; stop that "
            "worker, or remove the file 'uid_block' of this root so that its sandboxes are given other uids"
        )


def _lock_range(fd: int, start: int, size: int) -> bool:
    """Locks the bytes whose offsets are the uids, so that blocks of any size and start exclude each other."""
    request = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, start, size, 0)
    try:
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, request)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return False
        raise
    return True


def _checked_directory(path: Path) -> Path:
    try:
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o700)
        found = os.lstat(path)
        parent = os.stat(path.parent)
    except OSError as error:
        raise LockUnusable(f"the lock directory {path} cannot be made: {error}") from error
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise LockUnusable(f"{path} must be a directory of uid {os.geteuid()} with mode 0700, and no link; remove it")
    if parent.st_mode & stat.S_IWOTH and not parent.st_mode & stat.S_ISVTX:
        raise LockUnusable(f"{path.parent} is writable by everyone, so the lock directory in it cannot be trusted")
    return path


def _open_lock(path: Path) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        return os.open(path, flags, 0o600)
    except OSError as error:
        raise LockUnusable(f"the lock file {path} cannot be opened: {error}") from error


def _is_still(path: Path, fd: int) -> bool:
    """Whether the locked file still has its name; a root that was wiped and made again has another."""
    try:
        return os.path.samestat(os.lstat(path), os.fstat(fd))
    except FileNotFoundError:
        return False


def _sign(fd: int) -> None:
    os.ftruncate(fd, 0)
    os.pwrite(fd, json.dumps({"pid": os.getpid()}).encode(), 0)


def _holder(fd: int) -> str:
    try:
        return f"process {int(json.loads(os.pread(fd, 100, 0))['pid'])} or a child of it"
    except (ValueError, KeyError, TypeError):
        return "another process"
