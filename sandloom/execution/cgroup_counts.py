"""What the kernel counted for a command's group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sandloom.execution import cgroup_files as files
from sandloom.execution.spec import Budgets, GroupFacts

_ELSEWHERE = "the machine, or a group above the sandbox's, is out of memory"


_PEAK = {1: "memory.max_usage_in_bytes", 2: "memory.peak"}
_KILLS = {1: "memory.oom_control", 2: "memory.events"}
# Newer kernels do not count failures with version 1 any more, and a charge may fail this far below the bound.
_SLACK_BYTES = 1 << 20


@dataclass(slots=True)
class Counts:
    """Made before a command starts, read after its end. ``command`` and ``sandbox``: their groups by controller."""

    version: int
    command: Mapping[str, str]
    sandbox: Mapping[str, str]
    budgets: Budgets
    own: Budgets
    _forks_before: int = field(init=False)

    def __post_init__(self) -> None:
        self._forks_before = self._refused_above()

    def read(self) -> GroupFacts:
        memory_peak, kills = self._memory()
        pids = self.command.get("pids")
        peak = None if pids is None else files.number(f"{pids}/pids.peak")
        if peak is not None:
            # The kernel's peak counts the fork that was refused.
            peak = min([peak, *(bound for bound in (self.own.pids, self.budgets.pids) if bound is not None)])
        refused = 0 if pids is None else files.counter(f"{pids}/pids.events", "max")
        own_refused = refused > 0
        if not refused:
            # Version 2 counts at the group whose bound it was: the sandbox's, for whichever of its commands.
            refused = self._refused_above() - self._forks_before
        return GroupFacts(
            memory_peak_bytes=memory_peak,
            pids_peak=peak,
            oom_kills=kills,
            refused_forks=refused,
            memory_bound=self._memory_bound() if kills else "",
            pids_bound=self._pids_bound(own_refused) if refused else "",
        )

    def _memory(self) -> tuple[int | None, int]:
        directory = self.command.get("memory")
        if directory is None:
            return None, 0
        kills = files.counter(f"{directory}/{_KILLS[self.version]}", "oom_kill")
        return files.number(f"{directory}/{_PEAK[self.version]}"), kills

    def _memory_bound(self) -> str:
        if self.own.memory_bytes is not None and self._was_full(self.command["memory"], self.own.memory_bytes):
            return f"memory limit of {self.own.memory_bytes} bytes reached"
        if self.budgets.memory_bytes is not None and self._was_full(self.sandbox["memory"], self.budgets.memory_bytes):
            return f"memory budget of {self.budgets.memory_bytes} bytes reached"
        return _ELSEWHERE

    def _was_full(self, directory: str, bound_bytes: int) -> bool:
        if self.version == 2:
            return files.counter(f"{directory}/memory.events", "max") > 0
        peak = files.number(f"{directory}/{_PEAK[1]}") or 0
        return peak + _SLACK_BYTES >= bound_bytes

    def _refused_above(self) -> int:
        directory = self.sandbox.get("pids")
        return 0 if directory is None or self.version == 1 else files.counter(f"{directory}/pids.events", "max")

    def _pids_bound(self, own_refused: bool) -> str:
        if self.own.pids is not None and own_refused and self.own.pids <= (self.budgets.pids or self.own.pids):
            return f"process limit of {self.own.pids} reached"
        if self.budgets.pids is not None:
            return f"process budget of {self.budgets.pids} reached"
        return "a process limit above the sandbox's group was reached"
