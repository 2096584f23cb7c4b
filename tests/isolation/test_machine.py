"""With a budget programs see a machine of that size; without one they see the machine."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from sandloom.execution.spec import Budgets
from tests.isolation.kit import NATIVE_AND_TWIN

pytestmark = pytest.mark.bwrap

MIB = 1 << 20
COUNTS = """
import multiprocessing, os
print(os.cpu_count(), len(os.sched_getaffinity(0)), os.sysconf('SC_NPROCESSORS_CONF'), multiprocessing.cpu_count())
"""
ESCAPE = """
import os, time
os.sched_setaffinity(0, range(1024))
os.fork()
until = time.monotonic() + 1
while time.monotonic() < until: pass
"""


def words(sandbox, script: str, **changes) -> list[str]:
    ran = sandbox.shell(script, **changes)
    assert ran.verdict.exit_code == 0, ran
    return ran.text.split()


@NATIVE_AND_TWIN
def test_programs_count_the_processors_of_the_budget(make_budgeted):
    sandbox = make_budgeted(cpu_percent=90)
    assert sandbox.python(COUNTS).text == "1 1 1 1"
    assert words(sandbox, "nproc; nproc --all; cat /sys/devices/system/cpu/online; ls /sys/devices/system/cpu")[:2] == [
        "1", "1",
    ]  # fmt: skip
    if sandbox.template.plan.pid_namespace:
        assert words(sandbox, "grep -c ^processor /proc/cpuinfo; grep -c '^cpu[0-9]' /proc/stat") == ["1", "1"]


def test_as_many_as_the_worker_has_is_all_of_them(make_budgeted):
    have = len(os.sched_getaffinity(0))
    assert words(make_budgeted(cpu_percent=100 * have + 50), "nproc") == [str(have)]


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="missing: two processors")
def test_commands_at_once_sit_on_different_processors(make_budgeted):
    running, sandbox = [], make_budgeted(cpu_percent=100)
    for _ in range(2):
        running.append(sandbox.begin_shell("cat /sys/devices/system/cpu/online; sleep 300"))
        running[-1].see("\n")
    for command in running:
        command.handle.cancel()
        command.end()
    assert len({command.output for command in running}) == 2


def test_memory_is_that_of_the_budget(make_budgeted):
    sandbox = make_budgeted(memory_bytes=300 * MIB)
    if not sandbox.template.plan.pid_namespace:
        pytest.skip("basic has no /proc")
    assert words(sandbox, "free -m | sed -n 2p")[1] == "300"
    assert words(sandbox, "free -m | sed -n 3p")[1] == "0"
    assert words(sandbox, "sed -n 1p /proc/meminfo", own_budgets=Budgets(memory_bytes=64 * MIB))[1] == str(64 << 10)


@pytest.mark.skipif(shutil.which("node", path="/usr/bin:/usr/local/bin") is None, reason="missing: node")
def test_node_counts_what_the_budget_gives(make_budgeted):
    sandbox = make_budgeted(cpu_percent=50, memory_bytes=400 * MIB)
    if not sandbox.template.plan.pid_namespace:
        pytest.skip("basic has no /proc")
    script = "const os = require('os'); console.log(os.cpus().length, os.totalmem())"
    assert sandbox.run("node", "-e", script).text == f"1 {400 * MIB}"


def test_what_is_shown_cannot_be_changed_and_shows_no_more_of_the_host(make_budgeted):
    sandbox = make_budgeted(cpu_percent=50, memory_bytes=400 * MIB)
    tried = "for f in /sys/devices/system/cpu/online /proc/meminfo /proc/stat; do echo 9 > $f; done 2>/dev/null; "
    tried += "mkdir /sys/x 2>/dev/null; find /sys -maxdepth 3 | sort | tr '\\n' ' '"
    assert words(sandbox, tried) == ["/sys", "/sys/devices", "/sys/devices/system", "/sys/devices/system/cpu"]
    assert words(sandbox, "cat /sys/devices/system/cpu/online") != ["9"]


def test_who_takes_more_processors_still_gets_the_budget(make_budgeted):
    verdict = make_budgeted(cpu_percent=30).python(ESCAPE).verdict
    assert verdict.exit_code == 0
    assert 100 * verdict.usage.cpu_ms / verdict.duration_ms <= 60


def test_without_budgets_the_machine_is_the_machine(sandbox):
    assert words(sandbox, "nproc; test ! -e /sys; echo $?") == [str(len(os.sched_getaffinity(0))), "0"]
    if sandbox.template.plan.pid_namespace:
        total = Path("/proc/meminfo").read_text().split()[1]
        assert words(sandbox, "sed -n 1p /proc/meminfo")[1] == total
