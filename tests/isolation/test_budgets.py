"""Budgets of a sandbox and limits of a command, by programs that go beyond them."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import pytest

from sandloom.execution.budget_probe import problem_with
from sandloom.execution.runner import Runner
from sandloom.execution.spec import Budgets, BudgetsUnavailable, LaunchFault, Reason
from tests.isolation.kit import eventually

MIB = 1 << 20
BOMB = "chunks = []\nwhile True: chunks.append(bytearray(8 << 20))"
# Forks until it may not, says how often it could, and fails.
FORKS = """
import os, sys, time
made = 0
try:
    while made < 5000:
        if os.fork() == 0:
            time.sleep(300)
        made += 1
except BlockingIOError:
    print(made, flush=True)
    sys.exit(7)
"""
STEADY = "import os, sys\nprint('up', flush=True)\nsys.stdin.read()\nfor _ in range(20):\n"
STEADY += "    if os.fork() == 0: os._exit(0)\n    os.wait()\nprint('well', flush=True)"

pytestmark = pytest.mark.bwrap


def group_directories(groups, name: str = "") -> list[str]:
    tops = [Path(base) / name for base in groups.directories]
    return sorted(f"{path}/{child}" for top in tops for path, children, _ in os.walk(top) for child in children)


def test_a_memory_bomb_ends_as_oom_and_names_the_budget(make_budgeted):
    ran = make_budgeted(memory_bytes=48 * MIB).python(BOMB)
    assert (ran.verdict.reason, ran.verdict.signal) == (Reason.OOM, 9)
    assert ran.verdict.detail == f"memory budget of {48 * MIB} bytes reached"
    usage = ran.verdict.usage
    assert usage.oom_killed
    assert 40 * MIB <= usage.max_rss_bytes <= 48 * MIB
    assert (usage.pids_peak or 0) >= 1


def test_a_memory_bomb_touches_no_other_sandbox(make_budgeted):
    neighbour = make_budgeted(memory_bytes=48 * MIB)
    steady = neighbour.begin(
        "python3", "-c", "import time\nprint('up', flush=True)\nfor n in range(60): time.sleep(0.02)\nprint('well')"
    )
    steady.see("up")
    attacker = make_budgeted(memory_bytes=48 * MIB)
    verdicts = [attacker.python(BOMB).verdict.reason for _ in range(3)]
    assert verdicts == [Reason.OOM] * 3
    verdict = steady.end()
    assert (verdict.reason, verdict.exit_code, verdict.usage.oom_killed) == (Reason.EXIT, 0, False)
    assert b"well" in steady.output


def test_a_limit_of_the_command_is_told_from_the_budget(make_budgeted):
    sandbox = make_budgeted(memory_bytes=256 * MIB)
    ran = sandbox.python(BOMB, own_budgets=Budgets(memory_bytes=32 * MIB))
    assert ran.verdict.reason is Reason.OOM
    assert ran.verdict.detail == f"memory limit of {32 * MIB} bytes reached"
    assert sandbox.python("print(len(bytearray(64 << 20)))").text == str(64 * MIB)


def test_a_limit_needs_no_budget(make_budgeted):
    ran = make_budgeted().python(BOMB, own_budgets=Budgets(memory_bytes=32 * MIB))
    assert (ran.verdict.reason, ran.verdict.detail) == (Reason.OOM, f"memory limit of {32 * MIB} bytes reached")


@pytest.mark.parametrize(("code", "reason"), [(0, Reason.EXIT), (3, Reason.OOM)])
def test_out_of_memory_in_a_grandchild(make_budgeted, code, reason):
    script = f"python3 -c '{BOMB}'; echo $?; exit {code}"
    ran = make_budgeted(memory_bytes=48 * MIB).shell(script)
    assert (ran.verdict.reason, ran.verdict.exit_code) == (reason, code)
    assert ran.verdict.usage.oom_killed
    assert ran.text == "137"


def test_memory_file_systems_count(make_budgeted):
    sandbox = make_budgeted(memory_bytes=12 * MIB)
    ran = sandbox.shell("head -c 14000000 /dev/zero > /tmp/big; exit 4")
    assert (ran.verdict.reason, ran.verdict.usage.oom_killed) == (Reason.OOM, True)


def test_the_budget_is_of_all_commands_together(make_budgeted):
    sandbox = make_budgeted(memory_bytes=96 * MIB)
    script = "import os, time\nkept = bytearray(60 << 20)\nprint('holds', flush=True)\n"
    script += "while not os.path.exists('go'): time.sleep(0.05)"
    first = sandbox.begin_python(script)
    first.see("holds")
    second = sandbox.begin_python(script)
    # The kernel takes whichever it likes; both cannot be.
    assert eventually(lambda: first.verdict is not None or second.verdict is not None)
    (sandbox.workspace / "go").touch()
    assert Reason.OOM in {first.end().reason, second.end().reason}


def test_a_fork_bomb_is_contained_and_named(make_budgeted):
    neighbour = make_budgeted(pids=40)
    steady = neighbour.begin("python3", "-c", STEADY.replace("sys.stdin.read()", "import time; time.sleep(1)"))
    steady.see("up")
    ran = make_budgeted(pids=40).python(FORKS)
    assert (ran.verdict.reason, ran.verdict.exit_code) == (Reason.PIDS, 7)
    assert ran.verdict.detail == "process budget of 40 reached"
    assert 30 <= int(ran.text) < 40
    assert ran.verdict.usage.pids_peak in (40, None)
    assert (steady.end().exit_code, b"well" in steady.output) == (0, True)


def test_a_fork_storm_in_every_child_ends_with_its_command(make_budgeted):
    sandbox = make_budgeted(pids=60)
    storm = "import os\nwhile True:\n try: os.fork()\n except OSError: pass"
    ran = sandbox.python(storm, timeout_seconds=1)
    assert ran.verdict.reason is Reason.TIMEOUT
    assert sandbox.processes() == []
    assert sandbox.run("true").verdict.exit_code == 0


def test_a_process_limit_of_the_command(make_budgeted):
    sandbox = make_budgeted(pids=100)
    ran = sandbox.python(FORKS, own_budgets=Budgets(pids=12))
    assert (ran.verdict.reason, ran.verdict.detail) == (Reason.PIDS, "process limit of 12 reached")
    too_small = sandbox.run("true", own_budgets=Budgets(pids=1))
    assert (too_small.verdict.reason, too_small.verdict.error) == (Reason.NOT_STARTED, LaunchFault.PROCESS_LIMIT)
    assert too_small.verdict.detail == "process limit of 1 reached"


def test_a_sandbox_full_of_processes_starts_no_more(make_budgeted):
    sandbox = make_budgeted(pids=20)
    script = FORKS.replace("sys.exit(7)", "time.sleep(300)")
    full = sandbox.begin_python(script)
    full.see("1")
    refused = sandbox.run("true").verdict
    assert (refused.error, refused.detail) == (LaunchFault.PROCESS_LIMIT, "process budget of 20 reached")
    full.handle.cancel()
    assert full.end().reason is Reason.CANCELLED
    assert sandbox.run("true").verdict.exit_code == 0


@pytest.mark.parametrize("own", [False, True])
def test_processor_time_is_held(make_budgeted, own):
    spin = "import os, time\nend = time.monotonic() + 1.5\nos.fork()\nwhile time.monotonic() < end: pass"
    percent = 30
    sandbox = make_budgeted() if own else make_budgeted(cpu_percent=percent)
    verdict = sandbox.python(spin, own_budgets=Budgets(cpu_percent=percent) if own else Budgets()).verdict
    assert verdict.exit_code == 0
    # Two processes would use up to 200 percent. The bound is per 100 ms; starting and ending add a little.
    assert 100 * verdict.usage.cpu_ms / verdict.duration_ms <= 1.7 * percent


def test_a_timeout_is_still_a_timeout(make_budgeted):
    sandbox = make_budgeted(memory_bytes=64 * MIB, pids=50, cpu_percent=100)
    ran = sandbox.shell("trap '' TERM; (setsid sleep 300 &); while :; do sleep 300; done", timeout_seconds=0.5)
    assert ran.verdict.reason is Reason.TIMEOUT
    assert sandbox.processes() == []


def test_groups_go_with_their_commands_and_their_sandbox(make_budgeted, groups):
    sandbox = make_budgeted(memory_bytes=64 * MIB, pids=50, cpu_percent=100)
    running = sandbox.begin_shell("echo up; sleep 300")
    running.see("up")
    name = sandbox.template.group
    during = group_directories(groups, name)
    assert during
    running.handle.cancel()
    running.end()
    assert group_directories(groups, name) == []
    assert any(os.path.isdir(f"{base}/{name}") for base in groups.directories)
    groups.forget(name)
    assert not any(os.path.isdir(f"{base}/{name}") for base in groups.directories)


def test_idle_sandboxes_keep_a_bounded_number_of_groups(level, groups):
    for number in range(80):
        groups.command(f"idle{number}", Budgets(pids=10), Budgets()).finish()
    held = {Path(path).name for path in group_directories(groups) if Path(path).name.startswith("idle")}
    assert len(held) == 64
    assert "idle79" in held
    for number in range(80):
        groups.forget(f"idle{number}")


def test_without_budgets_there_is_no_group(sandbox, groups, spawner):
    before = group_directories(groups)
    handle = Runner(spawner, groups).start(sandbox.template, lambda *_: None)
    assert group_directories(groups) == before
    verdict = handle.wait()
    assert (verdict.exit_code, verdict.usage.pids_peak, verdict.usage.oom_killed) == (0, None, False)


def test_what_cannot_be_bounded_is_not_started(sandbox):
    with pytest.raises(BudgetsUnavailable):
        sandbox.run("true", budgets=Budgets(pids=10))
    with pytest.raises(BudgetsUnavailable):
        sandbox.run("true", own_budgets=Budgets(memory_bytes=MIB))


def test_a_group_that_vanished_starts_nothing(make_budgeted, groups, monkeypatch):
    sandbox = make_budgeted(pids=50)
    made = groups.command(sandbox.template.group, sandbox.template.budgets, Budgets())
    monkeypatch.setattr(groups, "command", lambda *_: made)
    made.finish()
    ran = sandbox.run("true")
    assert (ran.verdict.reason, ran.verdict.error) == (Reason.NOT_STARTED, LaunchFault.ISOLATION_FAILED)


def test_a_sandbox_group_that_someone_removed_is_made_again(make_budgeted, groups):
    sandbox = make_budgeted(memory_bytes=64 * MIB, pids=50)
    assert sandbox.run("true").verdict.exit_code == 0
    for base in groups.directories:
        if os.path.isdir(path := f"{base}/{sandbox.template.group}"):
            os.rmdir(path)
    with pytest.raises(BudgetsUnavailable, match="No such file"):
        sandbox.run("true")
    assert sandbox.run("true").verdict.exit_code == 0


def test_a_command_sees_and_reaches_no_cgroup(make_budgeted):
    ran = make_budgeted(memory_bytes=64 * MIB).shell(
        "ls -d /sys/fs/cgroup 2>/dev/null; grep cgroup /proc/self/mountinfo 2>/dev/null; echo done"
    )
    assert ran.text == "done"


def test_commands_at_once_are_counted_apart(make_budgeted):
    sandbox = make_budgeted(memory_bytes=200 * MIB, pids=150)
    sizes = (8, 24, 48)
    script = "import sys\nkept = bytearray(int(sys.argv[1]) << 20)\nprint('holds', flush=True)"
    running = [sandbox.begin("python3", "-c", script, str(size)) for size in sizes]
    peaks = [each.end().usage.max_rss_bytes for each in running]
    for (size, peak), (_, larger) in itertools.pairwise(zip(sizes, peaks, strict=True)):
        assert size * MIB <= peak < larger


def test_the_probe_sees_bounds_hold(sandbox, groups, spawner):
    assert problem_with(sandbox.template, spawner, groups) is None
