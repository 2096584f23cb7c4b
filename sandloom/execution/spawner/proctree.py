"""Looking at processes and ending them, by /proc alone (``/proc/*/children`` is not in every kernel)."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
from collections.abc import Iterable
from typing import NamedTuple


class Process(NamedTuple):
    pid: int
    parent: int
    state: str


def read_process(pid: int) -> Process | None:
    """``None`` when there is no such process. The name in ``stat`` may hold anything, so parse after the last ``)``."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as stream:
            text = stream.read()
    except (FileNotFoundError, ProcessLookupError):
        return None
    state, parent = text[text.rindex(b")") + 2 :].split(None, 2)[:2]
    return Process(pid, int(parent), state.decode("ascii"))


def snapshot() -> list[Process]:
    """Every process of the machine, zombies included."""
    found = (read_process(int(name)) for name in os.listdir("/proc") if name.isdigit())
    return [process for process in found if process is not None]


def children_of(parent: int) -> list[int]:
    return [process.pid for process in snapshot() if process.parent == parent]


def descendants(roots: Iterable[int]) -> list[int]:
    """Processes below ``roots`` (without them), parents before children."""
    by_parent: dict[int, list[int]] = {}
    for process in snapshot():
        by_parent.setdefault(process.parent, []).append(process.pid)
    found: list[int] = []
    queue = list(roots)
    while queue:
        below = by_parent.get(queue.pop(), [])
        found += below
        queue += below
    return found


def send(pid: int, number: int) -> bool:
    """Whether the signal was sent; a process that is gone is an ordinary answer."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def terminate(pids: Iterable[int]) -> int:
    """TERM, and CONT so that a stopped process can act on it. Returns how many were reached."""
    reached = 0
    for pid in pids:
        if send(pid, signal.SIGTERM):
            reached += 1
            send(pid, signal.SIGCONT)
    return reached


def kill(pids: Iterable[int]) -> None:
    """KILL. As root, forbid each one to fork first, so that repeated passes win against a fork storm."""
    for pid in pids:
        with contextlib.suppress(OSError, ValueError):
            resource.prlimit(pid, resource.RLIMIT_NPROC, (0, 0))
        send(pid, signal.SIGKILL)
