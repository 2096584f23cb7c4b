"""Disk budgets that the kernel holds by project quotas; the same interface as ``disk.Disk``."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from sandloom.execution import project_quota
from sandloom.execution.directories import Directories
from sandloom.execution.disk import Growth, Room, Unbounded, Watched, shortage_of
from sandloom.execution.file_faults import FaultKind, FileFault
from sandloom.execution.probe import ProbeRequest, scratch_sandbox
from sandloom.execution.process import Spawner
from sandloom.execution.project_quota import ProjectQuota
from sandloom.execution.runner import Runner
from sandloom.execution.spec import Budgets, BudgetsUnavailable, Plan, Reason, Spec

# A write that does not fit leaves room for less than this.
_SLACK_BYTES = 64 * 1024
_PROBE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class _Bounded:
    project: int
    budgets: Budgets


class QuotaDisk:
    """Thread-safe. A sandbox at its bound still runs commands: they can delete, and the kernel refuses the rest."""

    mode = "enforced"

    def __init__(self, quota: ProjectQuota) -> None:
        self._quota = quota
        self._lock = threading.Lock()
        self._bounded: dict[str, _Bounded] = {}

    def admit(self, name: str, directories: Directories, budgets: Budgets) -> None:
        pass

    def watch(
        self, name: str, directories: Directories, budgets: Budgets, on_reached: Callable[[str], None]
    ) -> Watched:
        return Watched(lambda: None, lambda: self._reached(name))

    def room(self, name: str, directories: Directories, budgets: Budgets, uid: int) -> Room:
        """Raises ``OSError``."""
        if not budgets.disk:
            return Unbounded()
        bounded = _Bounded(project_quota.project_of(uid), budgets)
        project_quota.assign(directories.all, bounded.project)
        self._quota.bound(bounded.project, budgets.disk_bytes, budgets.inodes)
        with self._lock:
            self._bounded[name] = bounded
        return _Enforced(lambda byte_count, inodes: self._shortage(name, byte_count, inodes))

    def forget(self, name: str) -> None:
        with self._lock:
            bounded = self._bounded.pop(name, None)
        if bounded is not None:
            with contextlib.suppress(OSError):
                self._quota.bound(bounded.project, None, None)

    def close(self) -> None:
        self._quota.close()

    def _reached(self, name: str) -> str:
        with contextlib.suppress(OSError):
            return self._shortage(name, _SLACK_BYTES, 1)
        return ""

    def _shortage(self, name: str, byte_count: int, inodes: int) -> str:
        bounded = self._bounded.get(name)
        if bounded is None:
            return ""
        used_bytes, used_inodes = self._quota.usage(bounded.project)
        return shortage_of(bounded.budgets, used_bytes, used_inodes, byte_count, inodes)


class _Enforced:
    """A worker that is root may write beyond a quota, so it asks first."""

    def __init__(self, shortage: Callable[[int, int], str]) -> None:
        self._shortage = shortage

    @contextmanager
    def growing(self, path: str) -> Iterator[Growth]:
        def grow(byte_count: int, inodes: int = 0) -> None:
            if shortage := self._shortage(byte_count, inodes):
                raise FileFault(FaultKind.DISK_FULL, f"{path} cannot be stored: {shortage}")

        yield grow

    def freed(self) -> None:
        pass


def open_proved(request: ProbeRequest, plan: Plan, spawner: Spawner) -> QuotaDisk:
    """For the file system of the request's state directory. Raises ``BudgetsUnavailable`` with what is missing."""
    if not plan.uid_separation:
        raise BudgetsUnavailable("only a worker that is root can set a project quota")
    quota = ProjectQuota(str(request.state_dir))
    try:
        with scratch_sandbox(request, plan) as template:
            prove(template, spawner, quota)
    except BaseException:
        quota.close()
        raise
    return QuotaDisk(quota)


def prove(template: Spec, spawner: Spawner, quota: ProjectQuota) -> None:
    """By a command that writes too much. Raises ``BudgetsUnavailable``."""
    project = project_quota.project_of(template.uid)
    script = f"head -c {4 * _PROBE_BYTES} /dev/zero > /workspace/big 2>/dev/null"
    try:
        project_quota.assign(template.home_dirs.all, project)
        quota.bound(project, _PROBE_BYTES, None)
        spec = replace(template, argv=("/bin/sh", "-c", script))
        verdict = Runner(spawner).start(spec, lambda *_: None).wait()
        used, _ = quota.usage(project)
        quota.bound(project, None, None)
    except OSError as error:
        raise BudgetsUnavailable(f"a project quota cannot be set: {error.strerror}") from error
    if verdict.reason is not Reason.EXIT or verdict.exit_code == 0 or used > _PROBE_BYTES + _SLACK_BYTES:
        raise BudgetsUnavailable(f"a project quota of {_PROBE_BYTES} bytes did not hold: a command used {used}")
