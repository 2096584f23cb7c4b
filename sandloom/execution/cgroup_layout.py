"""Where the cgroups of this process are, and which bounds go into which files. Pure."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass

from sandloom.execution.spec import Budgets

CONTROLLERS = ("memory", "pids", "cpu")
#: A worker under cgroup v2 moves itself into this group below its own: groups with bounds hold no processes themselves.
MAIN = "sandloom-main"

_CPU_PERIOD_US = 100_000


@dataclass(frozen=True, slots=True)
class Layout:
    """``directories``: the own group of this process by controller; all the same with version 2."""

    version: int
    directories: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Mount:
    root: str
    point: str
    options: frozenset[str]

    def locate(self, own: str) -> str:
        """The directory of the group ``own``. A mount may show a part of the hierarchy only, as in a container."""
        below = own.removeprefix(self.root) if self.root != "/" else own
        if self.root != "/" and own != self.root and not own.startswith(f"{self.root}/"):
            below = ""
        return posixpath.normpath(f"{self.point}/{below}")


def version_1(mountinfo: str, own_groups: str) -> Layout | None:
    """From the texts of /proc/self/mountinfo and /proc/self/cgroup; ``None`` when no controller is mounted so."""
    own = _own(own_groups)
    found = {}
    for mount in _mounts(mountinfo, "cgroup"):
        for controller in set(CONTROLLERS) & mount.options & own.keys():
            found[controller] = mount.locate(own[controller])
    return Layout(1, found) if found else None


def version_2(mountinfo: str, own_groups: str) -> Layout | None:
    """The same for the unified hierarchy; which controllers it really has is for the caller to read."""
    own = _own(own_groups).get("")
    mounts = _mounts(mountinfo, "cgroup2")
    if own is None or not mounts:
        return None
    directory = mounts[0].locate(own)
    if posixpath.basename(directory) == MAIN:
        directory = posixpath.dirname(directory)
    return Layout(2, dict.fromkeys(CONTROLLERS, directory))


def _own(text: str) -> dict[str, str]:
    """Group by controller; that of the unified hierarchy under the empty name."""
    found = {}
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            found[controller] = path
    return found


def _mounts(mountinfo: str, kind: str) -> list[_Mount]:
    found = []
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        fields, (fs_type, *rest) = left.split(), right.split()
        if fs_type == kind:
            found.append(_Mount(_unescape(fields[3]), _unescape(fields[4]), frozenset(rest[-1].split(","))))
    return found


def _unescape(text: str) -> str:
    for code, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, char)
    return text


def settings(version: int, budgets: Budgets) -> list[tuple[str, str, str, bool]]:
    """(controller, file, text, whether the file may be missing) in the order in which they must be written."""
    found: list[tuple[str, str, str, bool]] = []
    if budgets.memory_bytes is not None:
        size = str(budgets.memory_bytes)
        # Memory that is swapped out is not memory given back. Kernels without swap accounting lack the second file.
        found += (
            [("memory", "memory.max", size, False), ("memory", "memory.swap.max", "0", True)]
            if version == 2
            else [
                ("memory", "memory.limit_in_bytes", size, False),
                ("memory", "memory.memsw.limit_in_bytes", size, True),
            ]
        )
    if budgets.pids is not None:
        found.append(("pids", "pids.max", str(budgets.pids), False))
    if budgets.cpu_percent is not None:
        quota_us = budgets.cpu_percent * _CPU_PERIOD_US // 100
        found += (
            [("cpu", "cpu.max", f"{quota_us} {_CPU_PERIOD_US}", False)]
            if version == 2
            else [
                ("cpu", "cpu.cfs_period_us", str(_CPU_PERIOD_US), False),
                ("cpu", "cpu.cfs_quota_us", str(quota_us), False),
            ]
        )
    return found
