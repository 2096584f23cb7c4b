"""Where cgroups are found, what is written into them and what is read out; both versions."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandloom.execution import cgroup_layout as layout
from sandloom.execution.cgroup_counts import Counts
from sandloom.execution.spec import Budgets

FIRST = """\
31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 /docker/abc /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
39 31 0:36 / /sys/fs/cgroup/my\\040pids rw,relatime - cgroup cgroup rw,pids
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
"""
FIRST_OWN = "4:memory:/docker/abc/w\n3:cpu,cpuacct:/a:b\n2:pids:/\n1:name=systemd:/s\n0::/\n"
SECOND = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot\n"


def test_version_1_by_its_mounts():
    found = layout.version_1(FIRST, FIRST_OWN)
    assert found is not None
    assert found.version == 1
    assert found.directories == {
        "memory": "/sys/fs/cgroup/memory/w", "cpu": "/sys/fs/cgroup/cpu,cpuacct/a:b", "pids": "/sys/fs/cgroup/my pids",
    }  # fmt: skip
    assert layout.version_1(SECOND, "0::/x\n") is None


def test_a_mount_of_another_part_is_taken_whole():
    found = layout.version_1(FIRST, FIRST_OWN.replace("/docker/abc/w", "/docker/abcdef"))
    assert found is not None
    assert found.directories["memory"] == "/sys/fs/cgroup/memory"


@pytest.mark.parametrize("own", ["/system.slice/w.service", f"/system.slice/w.service/{layout.MAIN}"])
def test_version_2_is_the_group_that_was_delegated(own):
    found = layout.version_2(SECOND, f"0::{own}\n")
    assert found is not None
    assert set(found.directories.values()) == {"/sys/fs/cgroup/system.slice/w.service"}
    assert layout.version_2("", f"0::{own}\n") is None
    assert layout.version_2(SECOND, "1:memory:/x\n") is None


ALL = Budgets(memory_bytes=64 << 20, cpu_percent=150, pids=9)


def test_bounds_of_version_1():
    # Memory before memory with swap: the other way round the kernel refuses.
    assert [(name, text) for _, name, text, _ in layout.settings(1, ALL)] == [
        ("memory.limit_in_bytes", str(64 << 20)), ("memory.memsw.limit_in_bytes", str(64 << 20)), ("pids.max", "9"),
        ("cpu.cfs_period_us", "100000"), ("cpu.cfs_quota_us", "150000"),
    ]  # fmt: skip


def test_bounds_of_version_2():
    assert [(name, text) for _, name, text, _ in layout.settings(2, ALL)] == [
        ("memory.max", str(64 << 20)), ("memory.swap.max", "0"), ("pids.max", "9"), ("cpu.max", "150000 100000"),
    ]  # fmt: skip


@pytest.mark.parametrize("version", [1, 2])
def test_only_the_swap_file_may_be_missing(version):
    optional = {name for _, name, _, may_miss in layout.settings(version, ALL) if may_miss}
    assert optional == ({"memory.memsw.limit_in_bytes"} if version == 1 else {"memory.swap.max"})
    assert layout.settings(version, Budgets()) == []


def test_bounds_name_their_controllers():
    assert Budgets().controllers == frozenset()
    assert ALL.controllers == {"memory", "cpu", "pids"} == set(layout.CONTROLLERS)


def tree(base: Path, files: dict[str, str]) -> str:
    base.mkdir(exist_ok=True)
    for name, text in files.items():
        (base / name).write_text(text + "\n")
    return str(base)


def counts(version: int, command: str, sandbox: str, budgets: Budgets = ALL, own: Budgets | None = None) -> Counts:
    places = dict.fromkeys(("memory", "pids"), command), dict.fromkeys(("memory", "pids"), sandbox)
    return Counts(version, *places, budgets, own or Budgets())


def test_counts_of_version_2(tmp_path):
    sandbox = tree(tmp_path / "s", {"pids.events": "max 2", "memory.events": "low 0\nmax 5\noom 1\noom_kill 1"})
    command = {"memory.peak": "1234", "pids.peak": "7", "pids.events": "max 0", "memory.events": "max 0\noom_kill 1"}
    made = counts(2, tree(tmp_path / "c", command), sandbox)
    tree(tmp_path / "s", {"pids.events": "max 6"})
    facts = made.read()
    assert (facts.memory_peak_bytes, facts.pids_peak, facts.oom_kills, facts.refused_forks) == (1234, 7, 1, 4)
    assert facts.memory_bound == f"memory budget of {64 << 20} bytes reached"
    assert facts.pids_bound == "process budget of 9 reached"


def test_the_commands_own_bound_is_told_apart(tmp_path):
    sandbox = tree(tmp_path / "s", {"pids.events": "max 0", "memory.events": "max 3"})
    command = {"pids.events": "max 1", "memory.events": "max 3\noom_kill 2"}
    facts = counts(2, tree(tmp_path / "c", command), sandbox, own=Budgets(memory_bytes=5, pids=3)).read()
    assert facts.memory_bound == "memory limit of 5 bytes reached"
    assert facts.pids_bound == "process limit of 3 reached"
    assert (facts.memory_peak_bytes, facts.pids_peak) == (None, None)


def test_counts_of_version_1(tmp_path):
    peak = "memory.max_usage_in_bytes"
    sandbox = tree(tmp_path / "s", {peak: str(64 << 20), "pids.events": "max 0"})
    command = {peak: "1000", "memory.oom_control": "under_oom 0\noom_kill 1", "pids.events": "max 4", "pids.peak": "10"}
    facts = counts(1, tree(tmp_path / "c", command), sandbox).read()
    assert (facts.memory_peak_bytes, facts.oom_kills, facts.refused_forks) == (1000, 1, 4)
    # The kernel's peak counts the one that was refused.
    assert facts.pids_peak == 9
    assert facts.memory_bound == f"memory budget of {64 << 20} bytes reached"


def test_a_kill_below_every_bound_is_the_machines(tmp_path):
    peak = "memory.max_usage_in_bytes"
    sandbox = tree(tmp_path / "s", {peak: str(10 << 20)})
    command = tree(tmp_path / "c", {peak: "1000", "memory.oom_control": "oom_kill 1"})
    assert "machine" in counts(1, command, sandbox).read().memory_bound


def test_nothing_counted_is_not_a_zero(tmp_path):
    facts = counts(1, str(tmp_path / "gone"), str(tmp_path / "gone")).read()
    assert (facts.memory_peak_bytes, facts.pids_peak, facts.oom_kills, facts.refused_forks) == (None, None, 0, 0)
