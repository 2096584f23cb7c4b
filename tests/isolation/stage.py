"""Where the hostile set is played: an attacker's sandbox, another one, another command of its own, and a worker."""

from __future__ import annotations

import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sandloom.execution.self_check import Ran
from sandloom.execution.spec import Limits, Plan
from tests.isolation.hostile.program import MARK, Facts
from tests.isolation.kit import Running, Sandbox

PACKAGE = Path(__file__).with_name("hostile")
LIMITS = Limits(
    max_processes=150, cpu_seconds=30, max_open_files=512, max_file_size_bytes=256 << 20, tmpfs_bytes=8 << 20,
    shm_bytes=4 << 20,
)  # fmt: skip
MAX_OUTPUT_BYTES = 1 << 20
# A network of documentation: nothing is ever sent to it.
OUTSIDE_ADDRESS = "192.0.2.1"
_CAPABILITY_XATTR = struct.pack("<IIIII", 0x02000001, 1 << 13, 0, 0, 0)


@dataclass(frozen=True)
class Outcome:
    """``kind``: reached, held, broken, or ended (without a word)."""

    kind: str
    text: str


def outcomes(names: Sequence[str], output: bytes, how_it_ended: object) -> dict[str, Outcome]:
    """What each program said."""
    found = {name: Outcome("ended", f"{how_it_ended}: {output[-500:]!r}") for name in names}
    for line in output.splitlines():
        if line.startswith(b"["):
            name, kind, text = json.loads(line)
            found[name] = Outcome(kind, text)
    return found


class Host:
    """The stand-in for a worker: a process with a secret, and a file that only it may read."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.file = directory / "worker-secret"
        self.file.write_text(f"{MARK} of the worker\n")
        self.file.chmod(0o600)
        environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(PACKAGE.parent), "SANDBOX_TOKEN": MARK + "-env"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "hostile.outside", str(directory)], stdout=subprocess.PIPE, env=environment
        )
        assert self.process.stdout is not None
        self.facts: Facts = json.loads(self.process.stdout.readline())

    def close(self) -> None:
        self.process.terminate()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


class Stage:
    """``play`` runs one program inside, ``control`` outside, ``harm`` says what it did to others."""

    def __init__(self, make: Callable[[Plan], Sandbox], plan: Plan, host: Host) -> None:
        self.host = host
        self.attacker, self.victim = make(plan), make(plan)
        self.attacker.template = replace(self.attacker.template, limits=LIMITS, max_output_bytes=MAX_OUTPUT_BYTES)
        for sandbox in (self.attacker, self.victim):
            shutil.copytree(PACKAGE, sandbox.workspace / "hostile", ignore=shutil.ignore_patterns("__pycache__"))
        self.other = self.victim.begin("python3", "-m", "hostile.outside", "/workspace", timeout_seconds=3600)
        self.other.see("}")
        self._sibling: Running | None = None
        self.planted = plant(self.attacker.workspace)
        shown = json.loads(self.other.output)
        self.other_file = self.victim.workspace / shown["shared_name"]
        self._before = self._state()

    def facts(self) -> Facts:
        limits = self.attacker.template.limits
        mounts = ["/etc", "/usr", "/tmp", "/proc", "/workspace"]
        return {
            **self.host.facts,
            **self.planted,
            "host_pid": self.host.process.pid,
            "victim_pid": python_of(self.victim),
            "sibling_pid": max(self._siblings()),
            "host_file": str(self.host.file),
            "other_file": str(self.other_file),
            "base": self.attacker.path.name,
            "bwrap": self.attacker.template.plan.bwrap,
            "mounts": mounts,
            "host_address_outside": OUTSIDE_ADDRESS,
            "max_processes": limits.max_processes,
            "max_open_files": limits.max_open_files,
            "max_file_size_bytes": limits.max_file_size_bytes,
            "tmpfs_bytes": limits.tmpfs_bytes,
            "shm_bytes": limits.shm_bytes,
            "max_output_bytes": MAX_OUTPUT_BYTES,
        }

    def _siblings(self) -> list[int]:
        """Host pids of another command of the attacker's own sandbox, started again when it was ended."""
        # What ended it may be faster than its verdict.
        if self._sibling is not None and (alive := self.attacker.processes()):
            return alive
        self._sibling = self.attacker.begin_shell("echo ready; exec sleep 3600", timeout_seconds=3600)
        self._sibling.see("ready")
        return self.attacker.processes()

    def play(self, *names: str, **changes: Any) -> tuple[dict[str, Outcome], Ran]:
        facts = json.dumps(self.facts()).encode()
        ran = self.attacker.run("python3", "-m", "hostile", *names, stdin=facts, timeout_seconds=250, **changes)
        return outcomes(names, ran.stdout, (ran.verdict, ran.stderr[-500:])), ran

    def control(self, whom: str, *names: str) -> dict[str, Outcome]:
        """The same outside, with the directory of the attacker's workspace and a descriptor left open."""
        wrapper = {
            "user": ["setpriv", f"--reuid={self.attacker.uid}", f"--regid={self.attacker.uid}", "--clear-groups"],
            "root": ["unshare", "--mount", "--uts"],
            "netns": ["unshare", "--mount", "--uts", "--net"],
        }[whom]
        script = f"exec 9</; timeout -s KILL 250 python3 -m hostile {' '.join(names)}; true"
        with tempfile.TemporaryFile() as said:
            process = subprocess.Popen(
                [*wrapper, "sh", "-c", script],
                stdin=subprocess.PIPE,
                stdout=said,
                cwd=self.attacker.workspace,
                env={"PATH": "/usr/local/bin:/usr/bin:/bin:/sbin"},
            )
            process.communicate(json.dumps(self.facts()).encode())
            said.seek(0)
            return outcomes(names, said.read(), process.returncode)

    def harm(self) -> list[str]:
        """What is no longer as it was, outside of the attacker's own sandbox."""
        found = [name for name, value in self._state().items() if value != self._before[name]]
        own = [] if self._sibling is None or self._sibling.verdict is not None else self._sibling_pids()
        left = [pid for pid in self.attacker.processes() if pid not in own]
        return [*found, *(f"process {pid} is left" for pid in left)]

    def _sibling_pids(self) -> list[int]:
        """Processes of the sandbox that are named like those of the quiet sibling."""
        names = {"bwrap", "sleep", "sh"}
        return [pid for pid in self.attacker.processes() if comm(pid) in names]

    def _state(self) -> dict[str, object]:
        bwrap = os.stat(self.attacker.template.plan.bwrap)
        return {
            "the worker": self.host.process.poll(),
            "the other sandbox": self.other.verdict,
            "its file": self.other_file.read_text(),
            "the worker's file": self.host.file.read_text(),
            "the host's name": socket.gethostname(),
            "bwrap": (bwrap.st_mtime_ns, bwrap.st_size, bwrap.st_mode),
            "core handler": Path("/proc/sys/kernel/core_pattern").read_text(),
            "swap": [line.split()[0] for line in Path("/proc/swaps").read_text().splitlines()],
            "mounts": " hostile " in Path("/proc/self/mountinfo").read_text(),
        }

    def close(self) -> None:
        for running in (self.other, self._sibling):
            if running is not None:
                running.handle.cancel()
                running.end()


def plant(workspace: Path) -> Facts:
    """What root may have unpacked into a workspace: names relative to it. Nothing without root."""
    if os.geteuid() != 0:
        return {}
    shutil.copy("/usr/bin/id", workspace / "planted-setuid")
    (workspace / "planted-setuid").chmod(0o6755)
    shutil.copy(os.path.realpath("/usr/bin/python3"), workspace / "planted-capable")
    os.setxattr(workspace / "planted-capable", "security.capability", _CAPABILITY_XATTR)
    os.mknod(workspace / "planted-device", 0o020666, os.makedev(1, 5))
    (workspace / "planted-device").chmod(0o666)
    return {f"planted_{name}": f"./planted-{name}" for name in ("setuid", "capable", "device")}


def python_of(sandbox: Sandbox) -> int:
    """The host pid of the Python that runs in it."""
    return next(pid for pid in sandbox.processes() if comm(pid).startswith("python"))


def comm(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""
