"""What is shown of the machine, as text, and which processors a command gets."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from sandloom.execution import machine
from sandloom.execution.machine import WHOLE, Machines
from sandloom.execution.spec import Budgets, Spec
from tests.unit.execution.test_argv import SPEC

MIB = 1 << 20
MEMINFO = """\
MemTotal:       24683656 kB
MemFree:        22205532 kB
MemAvailable:   23740424 kB
Buffers:           67960 kB
SwapTotal:       2097148 kB
CommitLimit:    12341828 kB
VmallocTotal:   34359738367 kB
HugePages_Total:       7
Hugepagesize:       2048 kB
"""
STAT = """\
cpu  30 0 30 300 0 0 0 0 0 0
cpu0 10 0 10 100 0 0 0 0 0 0
cpu1 12 0 10 100 0 0 0 0 0 0
cpu2 8 0 10 100 0 0 0 0 0 0
intr 99 1 2 3
btime 1700000000
softirq 5 1 2
"""
CPUINFO = "processor\t: 0\nmodel name\t: A\n\nprocessor\t: 1\nmodel name\t: B\n\nprocessor\t: 10\n\nHardware\t: C\n\n"


def test_memory_is_the_budget_all_free_without_swap():
    shown = dict(line.split(":") for line in machine.meminfo(MEMINFO, 512 * MIB).splitlines())
    kib = {name: int(value.split()[0]) for name, value in shown.items()}
    assert kib["MemTotal"] == kib["MemFree"] == kib["MemAvailable"] == kib["CommitLimit"] == 512 * 1024
    assert kib["Buffers"] == kib["SwapTotal"] == kib["HugePages_Total"] == 0
    assert (kib["VmallocTotal"], kib["Hugepagesize"]) == (34359738367, 2048)
    assert shown["HugePages_Total"].split() == ["0"]


def test_no_machine_is_shown_larger_than_it_is():
    assert machine.meminfo(MEMINFO, 1 << 50).splitlines()[1].split() == ["MemFree:", "24683656", "kB"]


def test_processors_are_those_of_the_command_and_their_sum():
    assert machine.stat(STAT, (1, 2)).splitlines() == [
        "cpu  20 0 20 200 0 0 0 0 0 0",
        "cpu1 12 0 10 100 0 0 0 0 0 0",
        "cpu2 8 0 10 100 0 0 0 0 0 0",
        "intr 99",
        "btime 1700000000",
        "softirq 5",
    ]
    assert machine.cpuinfo(CPUINFO, (1,)) == "processor\t: 1\nmodel name\t: B\n\nHardware\t: C\n\n"


@pytest.mark.parametrize(
    ("cpus", "text"), [((3,), "3"), ((0, 1, 2, 5), "0-2,5"), ((0, 2, 4, 5), "0,2,4-5"), ((6, 7), "6-7")]
)
def test_a_set_of_processors_is_written_as_the_kernel_does(cpus, text):
    assert machine.cpu_list(cpus) == text


def spec(tmp_path, own: Budgets | None = None, **budgets: int) -> Spec:
    plan = replace(SPEC.plan, machine_dir=str(tmp_path / "machine"))
    return replace(SPEC, plan=plan, budgets=Budgets(**budgets), own_budgets=own or Budgets())


def test_without_a_budget_nothing_is_shown_and_nothing_is_made(tmp_path):
    for nothing in (spec(tmp_path), spec(tmp_path, pids=10)):
        assert Machines().seat(nothing).machine is WHOLE
    assert not (tmp_path / "machine").exists()


def test_commands_are_spread_over_the_processors_that_the_worker_has(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {2, 3, 4, 5, 9})
    machines = Machines()
    half = spec(tmp_path, cpu_percent=150)
    seats = [machines.seat(half) for _ in range(3)]
    assert [seat.machine.cpus for seat in seats] == [(2, 3), (4, 5), (2, 9)]
    seats[1].leave()
    seats[1].leave()
    assert machines.seat(half).machine.cpus == (4, 5)
    assert machines.seat(spec(tmp_path, cpu_percent=10_000)).machine.cpus == (2, 3, 4, 5, 9)


def test_a_commands_own_limits_count_where_they_are_less(tmp_path):
    seat = Machines().seat(spec(tmp_path, Budgets(cpu_percent=20), cpu_percent=900))
    assert len(seat.machine.cpus) == 1
    assert machine.shown_memory(Budgets(memory_bytes=64 * MIB), Budgets(memory_bytes=48 * MIB)) == 48 * MIB
    assert machine.shown_memory(Budgets(memory_bytes=MIB), Budgets(memory_bytes=48 * MIB)) == MIB


def test_what_is_shown_for_own_limits_is_never_more_and_of_few_kinds():
    shown = {machine.shown_memory(Budgets(), Budgets(memory_bytes=n * 1001)) or 0 for n in range(1, 100_000, 7)}
    assert len(shown) < 200
    assert all(15 * n * 1001 // 17 < (machine.shown_memory(Budgets(), Budgets(memory_bytes=n * 1001)) or 0) <= n * 1001
               for n in range(1, 100_000, 991))  # fmt: skip


def test_a_failure_to_make_the_files_takes_no_processor(tmp_path):
    (tmp_path / "machine").write_text("in the way")
    machines = Machines()
    for _ in range(2):
        with pytest.raises(OSError, match="machine"):
            machines.seat(spec(tmp_path, cpu_percent=100))
    assert not any(machines._users.values())
