"""Disk budgets of sandboxes: who may start, who must end, and what the service itself may still write.

What is known of a sandbox is the last count and what the service has written since.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from sandloom.execution.directories import Directories
from sandloom.execution.disk_meter import Bounds, Count, DiskMeter
from sandloom.execution.file_faults import FaultKind, FileFault
from sandloom.execution.spec import Budgets, BudgetsUnavailable, ExecutionError

# How long a call waits for a fresh count, which it only needs when the last one leaves no room.
_COUNT_SECONDS = 10.0
_DIRECTORY_BYTES = 4096


class DiskBudgetReached(ExecutionError):
    """The sandbox has more on the disk than it may; the message has the numbers."""


class Growth(Protocol):
    """Room taken by one write."""

    def __call__(self, byte_count: int, inodes: int = 0) -> None:
        """Take this much more. Raises FileFault(DISK_FULL) when it is not there."""


class Room(Protocol):
    """What file calls ask before they write."""

    def growing(self, path: str) -> contextlib.AbstractContextManager[Growth]:
        """For one write of ``path``; what it took is given back when it fails."""

    def freed(self) -> None:
        """Something was removed."""


class Unbounded:
    """The room of a sandbox without a disk budget."""

    def growing(self, path: str) -> contextlib.AbstractContextManager[Growth]:
        return contextlib.nullcontext(lambda byte_count, inodes=0: None)

    def freed(self) -> None:
        pass


@dataclass(eq=False)
class _Addition:
    """``settled``: when it could be counted, of ``time.monotonic()``; ``None``: it is still being written."""

    byte_count: int = 0
    inodes: int = 0
    settled: float | None = None


@dataclass(eq=False, frozen=True)
class _Watching:
    on_reached: Callable[[str], None]


@dataclass(eq=False)
class _Account:
    name: str
    paths: tuple[str, ...]
    budgets: Budgets
    known: Count | None = None
    additions: list[_Addition] = field(default_factory=list)
    watching: list[_Watching] = field(default_factory=list)

    @property
    def bounds(self) -> Bounds:
        return self.budgets.disk_bytes, self.budgets.inodes

    def learn(self, count: Count) -> None:
        if self.known is not None and count.began < self.known.began:
            return
        self.known = count
        self.additions = [one for one in self.additions if one.settled is None or one.settled >= count.began]

    def shortage(self, *, byte_count: int = 0, inodes: int = 0) -> str:
        """What there would be too much of with so much more; empty when it fits or nothing is known."""
        if self.known is None:
            return ""
        if self.known.problem:
            return f"the disk budget cannot be measured: {self.known.problem}"
        used = self.known.byte_count + sum(one.byte_count for one in self.additions)
        used_inodes = self.known.inodes + sum(one.inodes for one in self.additions)
        return shortage_of(self.budgets, used, used_inodes, byte_count, inodes)


def shortage_of(budgets: Budgets, used_bytes: int, used_inodes: int, more_bytes: int, more_inodes: int) -> str:
    """What there would be too much of; empty when it fits."""
    if budgets.disk_bytes is not None and used_bytes + more_bytes > budgets.disk_bytes:
        return f"disk budget of {budgets.disk_bytes} bytes reached: {used_bytes} in use"
    if budgets.inodes is not None and used_inodes + more_inodes > budgets.inodes:
        return f"disk budget of {budgets.inodes} inodes reached: {used_inodes} in use"
    return ""


@dataclass(frozen=True, slots=True)
class Watched:
    """``stop``: the command is over; idempotent. ``reached``: asked before that, what its sandbox has too much of."""

    stop: Callable[[], None]
    reached: Callable[[], str]


class DiskBudgets(Protocol):
    """The disk budgets of one worker, ``measured`` or ``enforced``. Sandboxes are known by the name of their group."""

    @property
    def mode(self) -> str: ...

    def admit(self, name: str, directories: Directories, budgets: Budgets) -> None:
        """Before a command starts. Raises ``DiskBudgetReached`` and ``BudgetsUnavailable``."""

    def watch(
        self, name: str, directories: Directories, budgets: Budgets, on_reached: Callable[[str], None]
    ) -> Watched:
        """While one runs: ``on_reached`` is told when it must end. Raises ``BudgetsUnavailable``."""

    def room(self, name: str, directories: Directories, budgets: Budgets, uid: int) -> Room:
        """For the service's own writes; once for each sandbox, before anything runs in it. Raises ``OSError``."""

    def forget(self, name: str) -> None:
        """The sandbox is gone."""

    def close(self) -> None: ...


class Disk:
    """Measured, by the meter. Thread-safe."""

    mode = "measured"

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Held while the meter is told, so that it hears of begins and ends in their order.
        self._order = threading.Lock()
        self._accounts: dict[str, _Account] = {}
        self._meter = DiskMeter(self._counted, self._watch_again)

    def admit(self, name: str, directories: Directories, budgets: Budgets) -> None:
        account = self._account(name, directories, budgets)
        with self._lock:
            fits = account.known is not None and not account.shortage()
        if fits:
            return
        self._count(account)
        with self._lock:
            shortage = account.shortage()
        if shortage:
            raise DiskBudgetReached(shortage)

    def watch(
        self, name: str, directories: Directories, budgets: Budgets, on_reached: Callable[[str], None]
    ) -> Watched:
        account = self._account(name, directories, budgets)
        watching = _Watching(on_reached)
        with self._order:
            with self._lock:
                account.watching.append(watching)
            try:
                self._meter.watch(account.name, account.paths, account.bounds)
            except BudgetsUnavailable:
                with self._lock:
                    account.watching.remove(watching)
                raise
        return Watched(lambda: self._stop(account, watching), lambda: "")

    def _stop(self, account: _Account, watching: _Watching) -> None:
        with self._order:
            with self._lock:
                if watching not in account.watching:
                    return
                account.watching.remove(watching)
                last = not account.watching
            if last:
                self._meter.rest(account.name)

    def room(self, name: str, directories: Directories, budgets: Budgets, uid: int) -> Room:
        if not budgets.disk:
            return Unbounded()
        return _Measured(self, self._account(name, directories, budgets))

    def forget(self, name: str) -> None:
        with self._lock:
            known = self._accounts.pop(name, None)
        if known is not None:
            self._meter.forget(name)

    @property
    def meter_pid(self) -> int | None:
        return self._meter.pid

    def close(self) -> None:
        self._meter.close()

    def _account(self, name: str, directories: Directories, budgets: Budgets) -> _Account:
        with self._lock:
            account = self._accounts.get(name)
            if account is None:
                account = _Account(name, directories.all, budgets)
                self._accounts[name] = account
            return account

    def _count(self, account: _Account) -> None:
        found = self._meter.count(account.paths, account.bounds, _COUNT_SECONDS)
        if found is not None:
            with self._lock:
                account.learn(found)

    # On the meter's thread

    def _counted(self, name: str, count: Count) -> None:
        with self._lock:
            account = self._accounts.get(name)
            if account is None:
                return
            account.learn(count)
            told = account.shortage() if count.over or count.problem else ""
            watching = list(account.watching)
        if told:
            for one in watching:
                one.on_reached(told)

    def _watch_again(self) -> None:
        with self._lock:
            running = [account for account in self._accounts.values() if account.watching]
        for account in running:
            try:
                self._meter.watch(account.name, account.paths, account.bounds)
            except BudgetsUnavailable as error:
                # What nobody measures may not go on.
                for one in list(account.watching):
                    one.on_reached(str(error))

    # For the room

    def take(self, account: _Account, addition: _Addition, byte_count: int, inodes: int) -> str:
        """Empty, or what there is too much of; then nothing was taken."""
        if not self._shortage_after(account, addition, byte_count, inodes):
            return ""
        self._count(account)
        return self._shortage_after(account, addition, byte_count, inodes)

    def _shortage_after(self, account: _Account, addition: _Addition, byte_count: int, inodes: int) -> str:
        with self._lock:
            if account.known is None:
                return "it cannot be counted in time what is there"
            shortage = account.shortage(byte_count=byte_count, inodes=inodes)
            if not shortage:
                addition.byte_count += byte_count
                addition.inodes += inodes
            return shortage

    def begin(self, account: _Account) -> _Addition:
        addition = _Addition()
        with self._lock:
            account.additions.append(addition)
        return addition

    def settle(self, account: _Account, addition: _Addition, *, kept: bool) -> None:
        with self._lock:
            if kept:
                addition.settled = time.monotonic()
            else:
                account.additions.remove(addition)
        if kept:
            self.look(account)

    def look(self, account: _Account) -> None:
        self._meter.look(account.name, account.paths, account.bounds)


class _Measured:
    """The room that the last count leaves."""

    def __init__(self, disk: Disk, account: _Account) -> None:
        self._disk = disk
        self._account = account

    @contextmanager
    def growing(self, path: str) -> Iterator[Growth]:
        addition = self._disk.begin(self._account)
        kept = False

        def grow(byte_count: int, inodes: int = 0) -> None:
            shortage = self._disk.take(self._account, addition, byte_count + inodes * _DIRECTORY_BYTES, inodes)
            if shortage:
                raise FileFault(FaultKind.DISK_FULL, f"{path} cannot be stored: {shortage}")

        try:
            yield grow
            kept = True
        finally:
            self._disk.settle(self._account, addition, kept=kept)

    def freed(self) -> None:
        self._disk.look(self._account)
