"""CPU time and memory of processes with all they started, by /proc."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from sandloom.execution.spawner import proctree

_TICK_SECONDS = 1 / os.sysconf("SC_CLK_TCK")


def cpu_seconds(roots: Iterable[int]) -> float:
    """Of the processes, of their living descendants, and of what those have reaped."""
    return cpu_seconds_of(family(roots))


def cpu_seconds_of(pids: Iterable[int]) -> float:
    """Of these processes alone, and of what they have reaped."""
    return sum(map(_one, pids))


def memory_bytes(roots: Iterable[int]) -> int:
    """Proportional set size: shared pages are divided among who shares them."""
    return sum(_rollup(pid, "Pss:") for pid in family(roots))


def resident_bytes(roots: Iterable[int]) -> int:
    """Resident set size, summed."""
    return sum(_rollup(pid, "Rss:") for pid in family(roots))


def family(roots: Iterable[int]) -> list[int]:
    found = list(roots)
    return [*found, *proctree.descendants(found)]


def _one(pid: int) -> float:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    fields = text[text.rindex(")") + 2 :].split()
    return sum(map(int, fields[11:15])) * _TICK_SECONDS


def _rollup(pid: int, name: str) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))
