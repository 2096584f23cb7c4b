"""What callers were promised, and what commands wrote about themselves.

Every command appends its id to a file, and a lasting one also the time, again and again. The files have a second name
in a directory of the harness, so that they outlive the sandbox. They move with it: each line says of which run it is,
so a copy of a line is no second run.
"""

from __future__ import annotations

import os
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from sandloom.ids import ExecKey

RAN, BEATS = "ran", "beats"


@dataclass
class Order:
    """A command that somebody asked for. ``stdout``: what it writes when it succeeds. ``lasting``: it does not end by
    itself before the load does."""

    key: ExecKey
    stdout: bytes | None = None
    lasting: bool = False
    accepted: bool = False


@dataclass(frozen=True)
class Loss:
    """A sandbox whose files were said to be lost. ``generations``: from the one that last had them up to that one.
    ``before`` and ``after``: the disk of each worker then, and when it was said."""

    sandbox_id: str
    generations: range
    before: Mapping[str, Path]
    after: Mapping[str, Path]

    @property
    def gone(self) -> set[str]:
        """The workers whose disks really went."""
        return {name for name, disk in self.before.items() if self.after[name] != disk}


@dataclass
class Book:
    """Thread-safe; what is of one sandbox comes from one thread. ``found``: what became of files, wherever a sandbox
    was looked at again."""

    directory: Path
    orders: dict[str, Order] = field(default_factory=dict)
    calls: Counter[str] = field(default_factory=Counter)
    found: Counter[str] = field(default_factory=Counter)
    losses: list[Loss] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    accepted: int = 0
    _kept: dict[str, Path] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def order(self, order: Order) -> None:
        with self._lock:
            self.orders[order.key.exec_id] = order

    def accept(self, exec_id: str) -> None:
        with self._lock:
            order = self.orders[exec_id]
            self.accepted += not order.accepted
            order.accepted = True

    def called(self, name: str) -> None:
        with self._lock:
            self.calls[name] += 1

    def found_files(self, workspace: str) -> None:
        with self._lock:
            self.found[workspace] += 1

    def lost(self, loss: Loss) -> None:
        with self._lock:
            self.losses.append(loss)

    def fault(self, text: str) -> None:
        with self._lock:
            self.faults.append(text)

    # --- files ---

    def keep(self, workspace: Path, sandbox_id: str) -> list[str]:
        """From now on what commands of the sandbox write there is kept. Returns lines of before that it lacks; raises
        OSError where the files are not there, any more or yet."""
        now, before = workspace / RAN, self._kept.get(sandbox_id)
        if before is not None and now.samefile(before):
            return []
        inode = now.stat().st_ino
        for name in (RAN, BEATS):
            link = self.directory / f"{sandbox_id}.{inode}.{name}"
            link.unlink(missing_ok=True)
            os.link(workspace / name, link)
        self._kept[sandbox_id] = self.directory / f"{sandbox_id}.{inode}.{RAN}"
        if before is None:
            return []
        return sorted({*before.read_text().splitlines()} - {*self._kept[sandbox_id].read_text().splitlines()})

    def keeps(self, workspace: Path, sandbox_id: str) -> bool:
        """Whether what commands of the sandbox write into is what was kept."""
        with suppress(OSError):
            return (workspace / RAN).samefile(self._kept[sandbox_id])
        return False

    def lines(self, name: str, disks: Path) -> Iterator[list[str]]:
        """Words of every line that was written, those of files that were not kept too."""
        seen = set()
        for path in [*self.directory.glob(f"*.{name}"), *disks.glob(f"w*/root/sandboxes/*/*/workspace/{name}")]:
            with suppress(FileNotFoundError):
                inode = path.stat().st_ino
                if inode not in seen:
                    seen.add(inode)
                    yield from [line.split() for line in path.read_text().splitlines()]

    def runs(self, disks: Path) -> Counter[str]:
        """How often each command has begun."""
        return Counter(words[0] for words in {tuple(words) for words in self.lines(RAN, disks)} if words)

    def last_signs(self, disks: Path) -> dict[str, float]:
        """When each lasting command was last seen alive; seconds since the epoch."""
        last: dict[str, float] = defaultdict(float)
        for words in self.lines(BEATS, disks):
            if len(words) == 2:
                last[words[0]] = max(last[words[0]], float(words[1]))
        return last
