"""The workspace root of a worker and the sandboxes' directories in it."""

from __future__ import annotations

import errno
import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sandloom.execution import file_writer, sandbox_directory
from sandloom.execution.directories import Directories
from sandloom.execution.durable import create_small, read_small, remove_staged, write_small
from sandloom.execution.file_faults import FaultKind, FileFault
from sandloom.execution.locks import RootLock
from sandloom.execution.openat import DIRECTORY_FLAGS, rename_no_replace
from sandloom.execution.root_directory import RootUnusable, make_own, prepare_root, read_root_id
from sandloom.execution.sandbox_directory import WorkspaceFault, decode_name, directories_below, encode_name
from sandloom.execution.trash import Trash
from sandloom.execution.uid_claims import Claim, others

__all__ = ["Provisioned", "RootUnusable", "Space", "WorkspaceFault", "WorkspaceRoot"]

#: ``(tenant_id, sandbox_id)``; a ``SandboxKey`` is one.
Key = tuple[str, str]

_ATTEMPTS = 16
#: How long a delete waits for the removal of the tree.
_DELETE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Provisioned:
    """``kept``: the directory was there before, with what it held."""

    directories: Directories
    kept: bool


@dataclass(frozen=True, slots=True)
class Space:
    """Of the file system that holds the root; ``free``: for a process without special rights."""

    total_bytes: int
    free_bytes: int
    total_inodes: int
    free_inodes: int


class WorkspaceRoot:
    """One worker's root. Its methods may be called from any thread; two calls for one sandbox must not overlap."""

    def __init__(self, path: Path, root_id: str, state: Path, *, rootless: bool) -> None:
        self.path = path
        self.root_id = root_id
        self.rootless = rootless
        self.trash = Trash(str(path / ".trash"))
        self._state = state
        self._sandboxes = path / "sandboxes"

    @classmethod
    def open(cls, path: Path, *, rootless: bool = False, state: Path | None = None) -> WorkspaceRoot:
        """Creates or checks the root. Raises RootUnusable.

        ``state`` holds the worker's own lock, id and uid block; by default it lies in the root, and workers that share
        a root need one each.
        """
        root = prepare_root(path, rootless=rootless)
        shared_state = root / ".sandloom"
        try:
            if state is not None:
                make_own(state, 0o700)
            return cls(root, read_root_id(shared_state), state or shared_state, rootless=rootless)
        except OSError as error:
            raise RootUnusable(f"the workspace root {root} cannot be prepared: {error}") from error

    def lock(self, *, wait_seconds: float = 0) -> RootLock:
        """The lock that says that this worker lives. Raises LockHeld."""
        lock = RootLock.acquire(self._state / "lock", wait_seconds=wait_seconds)
        remove_staged(self._state)
        return lock

    def worker_id(self, configured: str | None = None) -> str:
        """The id kept in the root: ``configured`` replaces it, without one it is made once."""
        path = self._state / "worker_id"
        if configured is None:
            return create_small(path, f"worker-{secrets.token_hex(6)}")
        if read_small(path) != configured:
            write_small(path, configured)
        return configured

    @property
    def uid_block_start(self) -> int | None:
        """The first uid of the block that the sandboxes here were given from."""
        text = read_small(self._state / "uid_block") or ""
        return int(text) if text.isascii() and text.isdigit() else None

    def record_uid_block(self, start: int) -> None:
        if self.uid_block_start != start:
            write_small(self._state / "uid_block", str(start))

    def uid_claim(self, start: int, end: int) -> Claim:
        """Says that these uids are of the sandboxes here."""
        return Claim(start, end, str(self._state), str(self._sandboxes))

    def other_uid_claims(self, lock_dir: Path) -> list[Claim]:
        """What was noted there for other workers, and still holds."""
        return others(lock_dir, self._state)

    def create(self, key: Key, uid: int, gid: int) -> Provisioned:
        """Makes the sandbox's directory, or makes the one that is there belong to ``uid``. Idempotent; safe to kill.

        When the worker is not root, all belongs to its own user and ``uid`` and ``gid`` say nothing. Raises
        FileFault(DISK_FULL) and WorkspaceFault.
        """
        tenant, name = self._names(key)
        directories = directories_below(str(self._sandboxes / tenant / name))
        with _faults(key):
            for _ in range(_ATTEMPTS):
                with self._tenant(tenant, create=True) as tenant_fd:
                    if tenant_fd is None:
                        continue  # removed at this moment, since its last sandbox went
                    if _adopt(tenant_fd, name, uid, gid):
                        return Provisioned(directories, kept=True)
                    if self._build(tenant_fd, name, uid, gid):
                        return Provisioned(directories, kept=False)
        raise WorkspaceFault(f"the directory of {key[1]} is being made and removed by others at the same time")

    def create_filled(self, key: Key, uid: int, gid: int, fill: Callable[[int], None]) -> None:
        """Makes the sandbox's directory with what ``fill`` puts below its descriptor, whole or not at all; it replaces
        what is there. Raises what ``fill`` raises, FileFault(DISK_FULL) and WorkspaceFault."""
        tenant, name = self._names(key)
        self.delete(key)
        with _faults(key):
            for _ in range(_ATTEMPTS):
                with self._tenant(tenant, create=True) as tenant_fd:
                    if tenant_fd is not None and self._build(tenant_fd, name, uid, gid, fill):
                        return
        raise WorkspaceFault(f"the directory of {key[1]} is being made and removed by others at the same time")

    def directories(self, key: Key) -> Directories:
        """Where the sandbox's files lie, whether or not they exist."""
        tenant, name = self._names(key)
        return directories_below(str(self._sandboxes / tenant / name))

    def exists(self, key: Key) -> bool:
        tenant, name = self._names(key)
        return os.path.lexists(self._sandboxes / tenant / name)

    def keys(self) -> Iterator[Key]:
        """Every sandbox that has a directory here, in no order."""
        with os.scandir(self._sandboxes) as tenants:
            for tenant in tenants:
                tenant_id = decode_name("t", tenant.name)
                if tenant_id is not None:
                    yield from ((tenant_id, sandbox_id) for sandbox_id in _sandbox_ids(tenant.path))

    def delete(self, key: Key) -> bool:
        """Removes the sandbox's directory and all in it; False when there was none. Nothing may run in it any more.

        A very large tree is out of everybody's reach at once and goes on being removed in the background; a crash
        leaves the rest to ``empty_trash``. Raises WorkspaceFault.
        """
        tenant, name = self._names(key)
        with _faults(key), self._tenant(tenant, create=False) as tenant_fd:
            if tenant_fd is None:
                return False
            with self.trash.unit() as unit:
                try:
                    unit.take(tenant_fd, name.encode())
                except FileNotFoundError:
                    return False
                # Not synced: a directory that a power failure brings back belongs to nobody and goes at the next start.
                done = unit.remove(time.monotonic() + _DELETE_SECONDS)
        if not done:
            self.trash.empty_later()
        self._drop_tenant(tenant)
        return True

    def empty_trash(self, seconds: float = float("inf")) -> bool:
        """Finishes what earlier lives and long deletes left; False when something is left after ``seconds``."""
        return self.trash.empty(seconds)

    def sweep(self, key: Key) -> None:
        """Removes what file calls of an earlier life of this worker, the sandbox's owner, left behind."""
        file_writer.sweep(self.directories(key).staging)

    def drop_empty_tenants(self) -> None:
        """Removes the directories of tenants whose last sandbox went in a moment in which the worker was killed."""
        for name in os.listdir(self._sandboxes):
            if decode_name("t", name) is not None:
                self._drop_tenant(name)

    def space(self) -> Space:
        found = os.statvfs(self.path)
        return Space(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize, found.f_files, found.f_favail)

    def _names(self, key: Key) -> tuple[str, str]:
        tenant_id, sandbox_id = key
        return encode_name("t", tenant_id), encode_name("s", sandbox_id)

    @contextmanager
    def _tenant(self, name: str, *, create: bool) -> Iterator[int | None]:
        path = self._sandboxes / name
        try:
            if create and not path.is_dir():
                make_own(path, 0o700 if self.rootless else 0o711)
            fd = os.open(path, os.O_RDONLY | DIRECTORY_FLAGS)
        except FileNotFoundError:
            yield None
            return
        try:
            yield fd
        finally:
            os.close(fd)

    def _build(self, tenant_fd: int, name: str, uid: int, gid: int, fill: Callable[[int], None] | None = None) -> bool:
        with self.trash.unit() as unit:
            try:
                sandbox_directory.build(unit.fd, name, uid, gid, fill)
                rename_no_replace(unit.fd, name.encode(), tenant_fd, name.encode())
            except BaseException as error:
                unit.remove()
                if isinstance(error, FileExistsError | FileNotFoundError):
                    return False
                raise
        # Journals keep the order: what was built before the rename is durable with it.
        os.fsync(tenant_fd)
        return True

    def _drop_tenant(self, tenant: str) -> None:
        try:
            os.rmdir(self._sandboxes / tenant)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT):
                raise


def _adopt(tenant_fd: int, name: str, uid: int, gid: int) -> bool:
    try:
        top_fd = os.open(name, os.O_RDONLY | DIRECTORY_FLAGS, dir_fd=tenant_fd)
    except FileNotFoundError:
        return False
    try:
        sandbox_directory.adopt(top_fd, uid, gid)
    finally:
        os.close(top_fd)
    return True


def _sandbox_ids(tenant_path: str) -> Iterator[str]:
    try:
        with os.scandir(tenant_path) as sandboxes:
            for sandbox in sandboxes:
                sandbox_id = decode_name("s", sandbox.name)
                if sandbox_id is not None:
                    yield sandbox_id
    except (FileNotFoundError, NotADirectoryError):
        return


@contextmanager
def _faults(key: Key) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise FileFault(FaultKind.DISK_FULL, "there is no room for the sandbox's directory") from error
        raise WorkspaceFault(f"the directory of {key[1]} (tenant {key[0]}) cannot be made ready: {error}") from error
