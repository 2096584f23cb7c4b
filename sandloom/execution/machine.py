"""The machine that a command sees where budgets give it less than all: static files, mounted over the kernel's own.

They say how much there is, not how much of it is in use. They bound nothing: the cgroup does.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from sandloom.execution.spec import Budgets, Spec

CPU_DIRECTORY = "/sys/devices/system/cpu"
_CPU_LISTS = ("online", "present", "possible")
_OF_THE_BUDGET = frozenset({"MemTotal", "MemFree", "MemAvailable", "CommitLimit"})
_OF_THE_KERNEL = frozenset({"VmallocTotal", "Hugepagesize"})
# A command's own limits are any number; what is shown for them is rounded down to so many bits, so files stay few.
_OWN_MEMORY_BITS = 4


@dataclass(frozen=True, slots=True)
class Machine:
    """``cpus``: numbers of the processors to run on, empty: all. ``mounts``: (host path, where it is seen)."""

    cpus: tuple[int, ...] = ()
    mounts: tuple[tuple[str, str], ...] = ()


WHOLE = Machine()


def directory(state_dir: Path) -> Path:
    """Where the files of this boot of this machine lie; others may share ``state_dir``, and have other ones."""
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")
    return state_dir / f"machine-{boot_id[:8]}"


class Seat:
    """A command's machine, held until ``leave``."""

    def __init__(self, machine: Machine, leave: Callable[[Machine], None] = lambda _: None) -> None:
        self.machine = machine
        self._leave: Callable[[Machine], None] | None = leave

    def leave(self) -> None:
        """Idempotent."""
        leave, self._leave = self._leave, None
        if leave is not None:
            leave(self.machine)


class Machines:
    """Gives each command the processors that the fewest others have. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users: Counter[int] = Counter()

    def seat(self, spec: Spec) -> Seat:
        """Raises ``OSError`` when the files cannot be made."""
        percent = _least(spec.budgets.cpu_percent, spec.own_budgets.cpu_percent)
        memory = shown_memory(spec.budgets, spec.own_budgets)
        if percent is None and memory is None:
            return Seat(WHOLE)
        base = Path(spec.plan.machine_dir)
        mounts: list[tuple[str, str]] = []
        if memory is not None and spec.plan.pid_namespace:
            mounts.append((str(_memory_directory(base, memory) / "meminfo"), "/proc/meminfo"))
        if percent is None:
            return Seat(Machine((), tuple(mounts)))
        allowed = sorted(os.sched_getaffinity(0))
        with self._lock:
            cpus = self._choose(allowed, min(-(-percent // 100), len(allowed)))
            self._users.update(cpus)
        try:
            mounts += _cpu_mounts(_cpu_directory(base, cpus), with_proc=spec.plan.pid_namespace)
        except OSError:
            self._give_back(cpus)
            raise
        return Seat(Machine(cpus, tuple(mounts)), lambda machine: self._give_back(machine.cpus))

    def _choose(self, allowed: Sequence[int], count: int) -> tuple[int, ...]:
        """Neighbours, which share caches, and few different choices, each of which has files of its own."""
        starts = range(0, len(allowed), count)
        choices = [tuple(sorted({allowed[(start + at) % len(allowed)] for at in range(count)})) for start in starts]
        return min(choices, key=lambda cpus: sum(self._users[cpu] for cpu in cpus))

    def _give_back(self, cpus: Iterable[int]) -> None:
        with self._lock:
            self._users.subtract(cpus)


def shown_memory(budgets: Budgets, own: Budgets) -> int | None:
    """Bytes that a command is shown, at most what it may use; ``None``: those of the machine."""
    mine = own.memory_bytes
    if mine is not None:
        dropped_bits = max(0, mine.bit_length() - _OWN_MEMORY_BITS)
        mine = mine >> dropped_bits << dropped_bits
    return _least(budgets.memory_bytes, mine)


def _least(*bounds: int | None) -> int | None:
    return min((bound for bound in bounds if bound is not None), default=None)


def meminfo(host: str, total_bytes: int) -> str:
    """``/proc/meminfo`` of a machine with this much memory, all of it free, and no swap."""
    lines = []
    for line in host.splitlines():
        name, _, value = line.partition(":")
        number, *unit = value.split() or ["0"]
        if name == "MemTotal":
            total_bytes = min(total_bytes, 1024 * int(number))
        if name in _OF_THE_BUDGET:
            number = str(total_bytes // 1024)
        elif name not in _OF_THE_KERNEL:
            number = "0"
        lines.append(f"{name + ':':<16}{number:>8}" + "".join(f" {word}" for word in unit))
    return "\n".join(lines) + "\n"


def cpuinfo(host: str, cpus: Sequence[int]) -> str:
    """``/proc/cpuinfo`` with these processors only; what is said of all of them stays."""
    kept = []
    for block in host.strip("\n").split("\n\n"):
        number = re.match(r"processor\s*:\s*(\d+)$", block, re.MULTILINE)
        if number is None or int(number[1]) in cpus:
            kept.append(block)
    return "\n\n".join(kept) + "\n\n"


def stat(host: str, cpus: Sequence[int]) -> str:
    """``/proc/stat`` with these processors only, and their sum."""
    kept, sums, rest = [], [0] * 10, []
    for line in host.splitlines():
        name, *words = line.split()
        if name[:3] == "cpu" and name[3:].isdigit():
            if int(name[3:]) in cpus:
                kept.append(line)
                sums = [one + int(word) for one, word in zip(sums, words, strict=False)]
        elif name in ("intr", "softirq"):
            rest.append(f"{name} {words[0]}")
        elif name != "cpu":
            rest.append(line)
    return "\n".join([f"cpu  {' '.join(map(str, sums))}", *kept, *rest]) + "\n"


def cpu_list(cpus: Sequence[int]) -> str:
    """As the kernel writes it, such as ``0-2,5``. ``cpus`` is sorted and not empty."""
    runs: list[list[int]] = []
    for cpu in cpus:
        if runs and cpu == runs[-1][-1] + 1:
            runs[-1].append(cpu)
        else:
            runs.append([cpu])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def _cpu_mounts(directory: Path, *, with_proc: bool) -> list[tuple[str, str]]:
    mounts = [(str(directory / "cpu"), CPU_DIRECTORY)]
    if with_proc:
        mounts += [(str(directory / name), f"/proc/{name}") for name in ("cpuinfo", "stat")]
    return mounts


def _memory_directory(base: Path, total_bytes: int) -> Path:
    def fill(draft: Path) -> None:
        _write(draft / "meminfo", meminfo(_host("/proc/meminfo"), total_bytes))

    return _made(base / f"memory-{total_bytes}", fill)


def _cpu_directory(base: Path, cpus: Sequence[int]) -> Path:
    def fill(draft: Path) -> None:
        _write(draft / "cpuinfo", cpuinfo(_host("/proc/cpuinfo"), cpus))
        _write(draft / "stat", stat(_host("/proc/stat"), cpus))
        (draft / "cpu").mkdir()
        for name in _CPU_LISTS:
            _write(draft / "cpu" / name, cpu_list(cpus) + "\n")
        for cpu in cpus:
            # Older C libraries count these.
            (draft / "cpu" / f"cpu{cpu}").mkdir()
            (draft / "cpu" / f"cpu{cpu}").chmod(0o755)
        (draft / "cpu").chmod(0o755)

    return _made(base / f"cpus-{cpu_list(cpus)}", fill)


def _host(path: str) -> str:
    return Path(path).read_text(encoding="utf-8", errors="surrogateescape")


def _made(target: Path, fill: Callable[[Path], None]) -> Path:
    """The directory, whole or not at all; made when it is not there."""
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    target.parent.chmod(0o755)
    draft = target.parent / f".{target.name}.{os.getpid()}.{os.urandom(4).hex()}"
    draft.mkdir()
    try:
        fill(draft)
        draft.chmod(0o755)
        # Another thread may have been faster; the content is the same.
        with contextlib.suppress(OSError):
            draft.rename(target)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    if not target.is_dir():
        raise OSError(f"{target} cannot be made")
    return target


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", errors="surrogateescape")
    path.chmod(0o644)
