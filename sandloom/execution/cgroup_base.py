"""The cgroup below which a worker keeps those of its sandboxes: found, made, and with version 2 delegated."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass

from sandloom.execution import cgroup_files as files
from sandloom.execution import cgroup_layout as layout
from sandloom.execution.spec import BudgetsUnavailable

_PROOF = {
    1: {"memory": "memory.oom_control", "pids": "pids.max", "cpu": "cpu.cfs_quota_us"},
    2: {"memory": "memory.max", "pids": "pids.max", "cpu": "cpu.max"},
}
_DELEGATE_MARKS = ("user.delegate", "trusted.delegate")


@dataclass(frozen=True, slots=True)
class Base:
    """``directories``: by controller; with version 2 all the same. ``missing``: controllers not had, and why."""

    version: int
    directories: Mapping[str, str]
    missing: Mapping[str, str]


def make(name: str) -> Base:
    """The worker's group ``sandloom-<name>`` below the own one of this process. Raises ``BudgetsUnavailable``."""
    mountinfo, own = _text("/proc/self/mountinfo"), _text("/proc/self/cgroup")
    first, second = layout.version_1(mountinfo, own), layout.version_2(mountinfo, own)
    if first is not None:
        return _make_1(first, name)
    if second is not None:
        return make_2(second.directories["memory"], name)
    raise BudgetsUnavailable("no cgroup hierarchy with memory, pids or cpu is mounted")


def left_by(name: str) -> list[str]:
    """The groups that an earlier life of the same worker has left."""
    mountinfo, own = _text("/proc/self/mountinfo"), _text("/proc/self/cgroup")
    layouts = (layout.version_1(mountinfo, own), layout.version_2(mountinfo, own))
    places = {path for found in layouts if found is not None for path in found.directories.values()}
    return [path for place in sorted(places) if os.path.isdir(path := f"{place}/sandloom-{name}")]


def _text(path: str) -> str:
    with open(path, encoding="utf-8", errors="surrogateescape") as stream:
        return stream.read()


def _make_1(own: layout.Layout, name: str) -> Base:
    directories, missing = {}, {}
    for controller in layout.CONTROLLERS:
        if controller not in own.directories:
            missing[controller] = f"cgroup controller {controller} is not mounted"
            continue
        directory = f"{own.directories[controller]}/sandloom-{name}"
        try:
            os.makedirs(directory, exist_ok=True)
            if controller == "memory" and files.read(f"{directory}/memory.use_hierarchy") == "0":
                files.write(f"{directory}/memory.use_hierarchy", "1")
        except OSError as error:
            missing[controller] = f"cgroup {directory}: {error.strerror}"
            continue
        if os.path.exists(f"{directory}/{_PROOF[1][controller]}"):
            directories[controller] = directory
        else:
            os.rmdir(directory)
            missing[controller] = f"the kernel's cgroup controller {controller} has no {_PROOF[1][controller]}"
    if not directories:
        raise BudgetsUnavailable("; ".join(missing.values()))
    return Base(1, directories, missing)


def make_2(own: str, name: str) -> Base:
    had = (files.read(f"{own}/cgroup.controllers") or "").split()
    wanted = [controller for controller in layout.CONTROLLERS if controller in had]
    missing = {
        controller: f"cgroup {own} has no controller {controller}"
        for controller in layout.CONTROLLERS
        if controller not in had
    }
    if not wanted:
        raise BudgetsUnavailable("; ".join(missing.values()))
    directory = f"{own}/sandloom-{name}"
    try:
        if set(wanted) - set((files.read(f"{own}/cgroup.subtree_control") or "").split()):
            _make_room(own)
            enable(own, wanted)
        os.makedirs(directory, exist_ok=True)
        enable(directory, wanted)
    except OSError as error:
        raise BudgetsUnavailable(f"cgroup {error.filename or own}: {error.strerror}") from error
    return Base(2, dict.fromkeys(wanted, directory), missing)


def enable(directory: str, controllers: list[str]) -> None:
    """Let the groups below a group of version 2 have these controllers. Raises ``OSError``."""
    files.write(f"{directory}/cgroup.subtree_control", " ".join(f"+{controller}" for controller in controllers))


def _make_room(own: str) -> None:
    """Only a group without processes, or the root of all, can give controllers to those below it.

    So what runs in the own group moves one down, which is right only where the group was delegated to this worker.
    """
    if not os.path.exists(f"{own}/cgroup.type"):
        return
    if not _delegated(own):
        raise BudgetsUnavailable(f"cgroup {own} was not delegated to this worker")
    main = f"{own}/{layout.MAIN}"
    os.makedirs(main, exist_ok=True)
    for pid in (files.read(f"{own}/cgroup.procs") or "").split():
        with contextlib.suppress(ProcessLookupError):
            files.write(f"{main}/cgroup.procs", pid)


def _delegated(own: str) -> bool:
    """Marked so by systemd, the whole of what this container sees, or owned by this user who is not root."""
    for mark in _DELEGATE_MARKS:
        with contextlib.suppress(OSError):
            if os.getxattr(own, mark) == b"1":
                return True
    return os.path.ismount(own) or (os.geteuid() != 0 and os.stat(own).st_uid == os.geteuid())
