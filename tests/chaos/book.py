"""What callers were promised, and what commands wrote about themselves.

Every command appends its id to a file, and a lasting one also the time, again and again. The files have a second name
in a directory of the harness, so that they outlive the sandbox.
"""

from __future__ import annotations

import os
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator
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


@dataclass
class Book:
    """Thread-safe."""

    directory: Path
    orders: dict[str, Order] = field(default_factory=dict)
    calls: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    accepted: int = 0
    _inodes: dict[str, int] = field(default_factory=dict)
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

    def fault(self, text: str) -> None:
        with self._lock:
            self.faults.append(text)

    # --- files ---

    def keep(self, workspaces: list[Path], sandbox_id: str) -> None:
        """Raises OSError where the files are not there, any more or yet."""
        for name in (RAN, BEATS):
            link = self.directory / f"{sandbox_id}.{name}"
            link.unlink(missing_ok=True)
            os.link(workspaces[-1] / name, link)
        self._inodes[sandbox_id] = (workspaces[-1] / RAN).stat().st_ino

    def keeps(self, workspaces: list[Path], sandbox_id: str) -> bool:
        """Whether what commands of the sandbox write into is what was kept."""
        files = [path / RAN for path in workspaces]
        inodes = {path.stat().st_ino for path in files if path.exists()}
        return inodes == {self._inodes.get(sandbox_id)}

    def lines(self, name: str, disks: Path) -> Iterator[list[str]]:
        """Words of every line that was written, those of files that were not kept too."""
        seen = set()
        for path in [*self.directory.glob(f"*.{name}"), *disks.glob(f"w*/root/sandboxes/*/*/workspace/{name}")]:
            inode = path.stat().st_ino
            if inode not in seen:
                seen.add(inode)
                yield from (line.split() for line in path.read_text().splitlines())

    def runs(self, disks: Path) -> Counter[str]:
        """How often each command has begun."""
        return Counter(words[0] for words in self.lines(RAN, disks) if words)

    def last_signs(self, disks: Path) -> dict[str, float]:
        """When each lasting command was last seen alive; seconds since the epoch."""
        last: dict[str, float] = defaultdict(float)
        for words in self.lines(BEATS, disks):
            if len(words) == 2:
                last[words[0]] = max(last[words[0]], float(words[1]))
        return last
