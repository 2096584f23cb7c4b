"""Budgets by cgroups: one group for a sandbox, below it one for each command, made and removed with it."""

from __future__ import annotations

import contextlib
import os
import threading
from collections import OrderedDict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from sandloom.execution import cgroup_base, cgroup_files, cgroup_layout
from sandloom.execution.cgroup_counts import Counts
from sandloom.execution.spawner import groups as group_processes
from sandloom.execution.spec import Budgets, BudgetsUnavailable, GroupFacts

# Groups of sandboxes in which nothing runs are kept for the next command; more than these are not worth their memory.
_IDLE_GROUPS = 64
_REMOVE_SECONDS = 5.0
# Counted whenever a command has a group at all, for its receipt.
_COUNTED = frozenset({"memory", "pids"})


@dataclass
class _SandboxGroup:
    name: str
    directories: dict[str, str] = field(default_factory=dict)
    users: int = 0


class CommandGroup:
    """The group of one command. ``attach``: files that its first process writes ``0`` into; ``kill``: one for KILL."""

    def __init__(self, owner: Groups, sandbox: _SandboxGroup, directories: dict[str, str], counts: Counts) -> None:
        self._owner = owner
        self.sandbox = sandbox
        self.directories = directories
        self._counts = counts
        self._facts: GroupFacts | None = None
        self.attach = tuple(dict.fromkeys(f"{path}/cgroup.procs" for path in directories.values()))

    @property
    def own_directories(self) -> list[str]:
        """What was made for this command alone."""
        mine = (path for name, path in self.directories.items() if path != self.sandbox.directories[name])
        return list(dict.fromkeys(mine))

    @property
    def kill(self) -> str:
        directory = self.own_directories[0]
        kill_file = f"{directory}/{group_processes.KILL_FILE}"
        return kill_file if os.path.exists(kill_file) else f"{directory}/cgroup.procs"

    def finish(self) -> GroupFacts:
        """What was counted; the group is gone then, with whatever still ran in it. Idempotent."""
        if self._facts is None:
            self._facts = self._counts.read()
            self._owner.end(self, wait=True)
        return self._facts

    def abandon(self) -> None:
        """Remove it when it is empty, now or later: its command is still being ended."""
        if self._facts is None:
            self._facts = GroupFacts()
            self._owner.end(self, wait=False)


class Groups:
    """All groups of one worker. Thread-safe."""

    def __init__(self, base: cgroup_base.Base) -> None:
        self.version = base.version
        self.controllers = frozenset(base.directories)
        self.missing = dict(base.missing)
        self._base = dict(base.directories)
        self._lock = threading.Lock()
        self._sandboxes: dict[str, _SandboxGroup] = {}
        self._idle: OrderedDict[str, None] = OrderedDict()
        self._ending: list[CommandGroup] = []
        self._number = 0

    @classmethod
    def open(cls, name: str) -> Groups:
        """The groups of the worker ``name`` (letters and digits); what an earlier life of it left is ended and gone.

        Raises ``BudgetsUnavailable``.
        """
        if remaining := cls.remove_left(name):
            raise BudgetsUnavailable(f"cgroup {remaining[0]} of an earlier life holds processes that do not end")
        return cls(cgroup_base.make(name))

    @staticmethod
    def remove_left(name: str) -> list[str]:
        """End and remove what an earlier life of the worker ``name`` left; the groups that could not be removed."""
        return [
            path for path in cgroup_base.left_by(name) if not cgroup_files.remove(path, timeout_seconds=_REMOVE_SECONDS)
        ]

    @property
    def directories(self) -> list[str]:
        return list(dict.fromkeys(self._base.values()))

    def lacks(self, wanted: Collection[str]) -> str:
        """Why not all of these controllers can be had; empty when they can."""
        return "; ".join(self.missing[name] for name in sorted(wanted) if name in self.missing)

    def command(self, group: str, budgets: Budgets, own: Budgets) -> CommandGroup:
        """A group for one command in the sandbox's group ``group``. Raises ``BudgetsUnavailable``."""
        wanted = budgets.controllers | own.controllers
        if wanted - self.controllers:
            raise BudgetsUnavailable(self.lacks(wanted))
        if not group or "/" in group:
            raise ValueError("a group has a name that is one path component")
        used = [name for name in cgroup_layout.CONTROLLERS if name in wanted | (_COUNTED & self.controllers)]
        with self._lock:
            self._sweep()
            sandbox = self._sandboxes.setdefault(group, _SandboxGroup(group))
            sandbox.users += 1
            self._idle.pop(group, None)
            self._number += 1
            number = self._number
        try:
            with self._lock:
                self._make_sandbox(sandbox, used, budgets)
            directories = self._make_command(sandbox, used, own, number)
        except OSError as error:
            with self._lock:
                self._leave(sandbox)
                if not sandbox.users and self._sandboxes.get(group) is sandbox:
                    # Someone may have removed it; the next command makes it again.
                    del self._sandboxes[group]
                    self._idle.pop(group, None)
            raise BudgetsUnavailable(f"cgroup {error.filename}: {error.strerror}") from error
        counts = Counts(self.version, directories, dict(sandbox.directories), budgets, own)
        return CommandGroup(self, sandbox, directories, counts)

    def end(self, command: CommandGroup, *, wait: bool) -> None:
        gone = [
            cgroup_files.remove(path, timeout_seconds=_REMOVE_SECONDS) if wait else cgroup_files.remove_empty(path)
            for path in command.own_directories
        ]
        with self._lock:
            if all(gone):
                self._leave(command.sandbox)
            else:
                self._ending.append(command)

    def forget(self, group: str) -> None:
        """Remove a sandbox's group, with whatever still runs in it."""
        with self._lock:
            self._idle.pop(group, None)
            self._sandboxes.pop(group, None)
        for directory in self.directories:
            cgroup_files.remove(f"{directory}/{group}", timeout_seconds=_REMOVE_SECONDS)

    def kill_all(self) -> None:
        """Every process of every command, for when their spawner has died."""
        for directory in self.directories:
            cgroup_files.kill_all(directory)

    def close(self) -> None:
        """Remove everything, this worker's own groups too."""
        with self._lock:
            self._sandboxes.clear()
            self._idle.clear()
            self._ending.clear()
        for directory in self.directories:
            cgroup_files.remove(directory, timeout_seconds=_REMOVE_SECONDS)

    # With the lock held

    def _make_sandbox(self, sandbox: _SandboxGroup, used: Iterable[str], budgets: Budgets) -> None:
        lacking = [name for name in used if name not in sandbox.directories]
        if not lacking:
            return
        directories = {name: f"{self._base[name]}/{sandbox.name}" for name in lacking}
        for path in dict.fromkeys(directories.values()):
            with contextlib.suppress(FileExistsError):
                os.mkdir(path)
        self._bound(directories, budgets)
        if self.version == 2:
            cgroup_base.enable(next(iter(directories.values())), sorted(self.controllers))
        sandbox.directories.update(directories)

    def _leave(self, sandbox: _SandboxGroup) -> None:
        sandbox.users -= 1
        if sandbox.users or self._sandboxes.get(sandbox.name) is not sandbox:
            return
        self._idle[sandbox.name] = None
        while len(self._idle) > _IDLE_GROUPS:
            oldest, _ = self._idle.popitem(last=False)
            for path in self._sandboxes.pop(oldest).directories.values():
                cgroup_files.remove_empty(path)

    def _sweep(self) -> None:
        ending, self._ending = self._ending, []
        for command in ending:
            kept = [path for path in command.own_directories if not cgroup_files.remove_empty(path)]
            if kept:
                self._ending.append(command)
            else:
                self._leave(command.sandbox)

    # Without it

    def _make_command(self, sandbox: _SandboxGroup, used: Sequence[str], own: Budgets, number: int) -> dict[str, str]:
        directories: dict[str, str] = {}
        for name in used:
            above = sandbox.directories[name]
            # With version 1 a controller that only bounds needs no group of the command's own beside another one.
            shared = self.version == 1 and name not in own.controllers and name not in _COUNTED and _COUNTED & set(used)
            directories[name] = above if shared else f"{above}/{number}"
        made = []
        try:
            for path in dict.fromkeys(directories.values()):
                if path.endswith(f"/{number}"):
                    os.mkdir(path)
                    made.append(path)
            self._bound(directories, own)
        except OSError:
            for path in made:
                cgroup_files.remove_empty(path)
            raise
        return directories

    def _bound(self, directories: dict[str, str], budgets: Budgets) -> None:
        for controller, name, text, optional in cgroup_layout.settings(self.version, budgets):
            if controller not in directories:
                continue
            try:
                cgroup_files.write(f"{directories[controller]}/{name}", text)
            except FileNotFoundError:
                if not optional:
                    raise
