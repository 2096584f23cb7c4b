"""Sandboxes to run hostile programs in, and ways to see what is left of them."""

from __future__ import annotations

import functools
import itertools
import os
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sandloom.execution.isolation import LEVELS
from sandloom.execution.locks import UidBlock
from sandloom.execution.runner import Handle, Runner
from sandloom.execution.self_check import Bench, Ran
from sandloom.execution.spawner import proctree
from sandloom.execution.spec import Budgets, Directories, Level, Limits, Plan, Spec, Verdict

_numbers = itertools.count()

# For modules whose tests are to hold for the compiled helper and for its twin in Python.
NATIVE_AND_TWIN = pytest.mark.parametrize(
    "native", [True, False], ids=["native", "twin"], indirect=True, scope="session"
)


@functools.cache
def uid_block() -> UidBlock:
    """Uids of this test run alone, outside the range of real workers: those end every process in theirs."""
    return UidBlock.acquire(60_100, 64_099, 500, None, Path("/run/sandloom-tests"))


def next_uid() -> int:
    block = uid_block()
    return block.start + 1 + next(_numbers) % (block.size - 1)


def probe_uid() -> int:
    return uid_block().start if os.geteuid() == 0 else os.getuid()


def plan_for(level: Level, plan: Plan) -> Plan:
    shape = LEVELS[level]
    return replace(plan, level=level, pid_namespace=shape.pid_namespace, cgroup_namespace=shape.cgroup_namespace)


class Sandbox(Bench):
    """One sandbox on disk; ``run`` and ``shell`` wait, ``begin`` runs in the background."""

    def __init__(self, base: Path, plan: Plan, runner: Runner, budgets: dict[str, int] | None = None) -> None:
        self.uid = next_uid() if plan.uid_separation else os.getuid()
        self.path = Path(tempfile.mkdtemp(prefix=f"sandbox-{self.uid}-", dir=base))
        self.path.chmod(0o711)
        places = [self.path / name for name in ("workspace", "home", "envs", "cache")]
        for place in places:
            place.mkdir(mode=0o700)
            if plan.uid_separation:
                os.chown(place, self.uid, self.uid)
        self.workspace = places[0]
        gid = self.uid if plan.uid_separation else os.getgid()
        template = Spec(
            name=self.path.name,
            plan=plan,
            uid=self.uid,
            gid=gid,
            home_dirs=Directories(*map(str, places)),
            argv=("true",),
            timeout_seconds=60,
            terminate_grace_seconds=0.2,
            limits=Limits(max_processes=200, cpu_seconds=60, tmpfs_bytes=16 << 20, shm_bytes=8 << 20),
            group=self.path.name,
            budgets=Budgets(**(budgets or {})),
        )
        super().__init__(runner.start, template)
        self.runner = runner

    def begin(self, *argv: str, **changes: Any) -> Running:
        return Running(self.runner, replace(self.template, argv=argv, **changes))

    def begin_shell(self, script: str, **changes: Any) -> Running:
        return self.begin("/bin/sh", "-c", script, **changes)

    def begin_python(self, script: str, **changes: Any) -> Running:
        return self.begin("python3", "-c", script, **changes)

    def python(self, script: str, **changes: Any) -> Ran:
        return self.run("python3", "-c", script, **changes)

    def processes(self) -> list[int]:
        """Every process that holds this sandbox's workspace mounted, or runs under its uid."""
        return [pid for pid in running_pids() if belongs(pid, self)]


class Running:
    """A command in a thread of its own; ``see`` waits for its output."""

    def __init__(self, runner: Runner, spec: Spec) -> None:
        self._changed = threading.Condition()
        self.output = b""
        self.verdict: Verdict | None = None
        self.handle: Handle = runner.start(spec, self._sink)
        self._thread = threading.Thread(target=self._wait, daemon=True)
        self._thread.start()

    def _sink(self, _: str, chunk: bytes) -> None:
        with self._changed:
            self.output += chunk
            self._changed.notify_all()

    def _wait(self) -> None:
        verdict = self.handle.wait()
        with self._changed:
            self.verdict = verdict
            self._changed.notify_all()

    def see(self, text: str, timeout_seconds: float = 120) -> None:
        with self._changed:
            found = self._changed.wait_for(
                lambda: text.encode() in self.output or self.verdict is not None, timeout_seconds
            )
        assert found, self.output
        assert text.encode() in self.output, (self.output, self.verdict)

    def end(self, timeout_seconds: float = 120) -> Verdict:
        """Wait for the verdict."""
        self._thread.join(timeout_seconds)
        assert self.verdict is not None, f"no verdict; output: {self.output[-2000:]!r}"
        return self.verdict


def running_pids() -> list[int]:
    return [process.pid for process in proctree.snapshot() if process.state not in "ZX"]


def belongs(pid: int, sandbox: Sandbox) -> bool:
    try:
        if sandbox.template.plan.uid_separation:
            return os.stat(f"/proc/{pid}").st_uid == sandbox.uid or _real_uid(pid) == sandbox.uid
        text = Path(f"/proc/{pid}/mountinfo").read_text() + Path(f"/proc/{pid}/cmdline").read_text()
    except (OSError, ValueError):
        return False
    return f"{sandbox.path}/" in text


def _real_uid(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text(errors="replace")
    return int(status.split("Uid:")[1].split()[0])


def with_enough_time(attempt: Callable[[float], bool], seconds: float = 1.0) -> None:
    """``attempt`` runs something that is ended after the seconds it is given; again with twice as much until it says
    that this was not too early."""
    while not attempt(seconds):
        seconds *= 2
        assert seconds < 120, "it did not get so far in any time"


def eventually(condition: Callable[[], bool], timeout_seconds: float = 120) -> bool:
    """For what no event tells about, such as the end of a process that is nobody's child here."""
    deadline = time.monotonic() + timeout_seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True
