"""Groups of a worker that died hold nothing that lives, and are gone after its next start."""

from __future__ import annotations

import os
import pickle
import signal
import sys
from dataclasses import replace

import pytest

from sandloom.execution import cgroup_base
from sandloom.execution.cgroups import Groups
from sandloom.execution.process import Spawner
from sandloom.execution.reap import kill_uid_range
from sandloom.execution.runner import Runner
from sandloom.execution.spec import Budgets, LaunchFault, Reason
from tests.isolation.kit import Sandbox, eventually, plan_for
from tests.services.process import ROOT, Process, base_environment

pytestmark = pytest.mark.bwrap

BUDGETS = {"memory_bytes": 64 << 20, "pids": 50, "cpu_percent": 100}
STUBBORN = "trap '' TERM; (trap '' TERM; setsid sleep 300 &); echo ready; while :; do sleep 300; done"


def everything_below(directories) -> list[str]:
    return [f"{path}/{child}" for base in directories for path, children, _ in os.walk(base) for child in children]


def test_a_spawner_killed_leaves_neither_process_nor_group(level, report, state_dir, groups):
    assert report.plan is not None
    spawner = Spawner(clean_up=groups.kill_all)
    sandbox = Sandbox(state_dir, plan_for(level, report.plan), Runner(spawner, groups), budgets=BUDGETS)
    running = sandbox.begin_shell(STUBBORN)
    running.see("ready")
    assert spawner.pid is not None
    os.kill(spawner.pid, signal.SIGKILL)
    verdict = running.end()
    assert (verdict.reason, verdict.error) == (Reason.WORKER_LOST, LaunchFault.SPAWNER_LOST)
    assert sandbox.processes() == []
    directories = [f"{base}/{sandbox.template.group}" for base in groups.directories]
    assert everything_below(directories) == []
    assert sandbox.run("true").verdict.exit_code == 0
    groups.forget(sandbox.template.group)
    spawner.close()


def test_a_worker_killed_leaves_groups_that_its_next_start_removes(level, report, state_dir, spawner, groups, tmp_path):
    assert report.plan is not None
    name = f"test-stand-in-{os.getpid()}"
    sandbox = Sandbox(state_dir, plan_for(level, report.plan), Runner(spawner), budgets=BUDGETS)
    spec = replace(sandbox.template, argv=("/bin/sh", "-c", STUBBORN))
    (tmp_path / "spec").write_bytes(pickle.dumps(spec))
    module = "tests.isolation.worker_stand_in"
    worker = Process(
        [sys.executable, "-m", module, tmp_path / "spec", tmp_path / "lock", "300", str(spawner.native), name],
        log_path=tmp_path / "worker.log",
        env=base_environment(PYTHONPATH=str(ROOT)),
    )
    spawner_pid = int(worker.wait_for_output(r"ready\n (\d+)\n").group(1))
    left = cgroup_base.left_by(name)
    assert everything_below(left)
    # The spawner first: what it would have ended is still running when the next life starts.
    os.kill(spawner_pid, signal.SIGSTOP)
    worker.stop(signal.SIGKILL)
    os.kill(spawner_pid, signal.SIGKILL)
    if sandbox.template.plan.uid_separation:
        kill_uid_range(sandbox.uid, sandbox.uid)
    reopened = Groups.open(name)
    assert everything_below(reopened.directories) == []
    assert eventually(lambda: sandbox.processes() == [])
    reopened.close()
    assert cgroup_base.left_by(name) == []


def test_a_next_start_ends_what_still_runs_in_them(level, report, state_dir, spawner, groups):
    assert report.plan is not None
    name = f"test-former-{os.getpid()}"
    former = Groups.open(name)
    sandbox = Sandbox(state_dir, plan_for(level, report.plan), Runner(spawner, former), budgets=BUDGETS)
    running = sandbox.begin_shell(STUBBORN)
    running.see("ready")
    assert Groups.remove_left(name) == []
    running.end()
    assert sandbox.processes() == []
    assert cgroup_base.left_by(name) == []


def test_a_command_given_up_takes_its_group_along(level, report, state_dir, spawner, groups):
    assert report.plan is not None
    sandbox = Sandbox(state_dir, plan_for(level, report.plan), Runner(spawner, groups), budgets=BUDGETS)
    handle = Runner(spawner, groups).start(replace(sandbox.template, argv=("sleep", "300")), lambda *_: None)
    handle.close()
    assert eventually(lambda: sandbox.processes() == [])
    directories = [f"{base}/{sandbox.template.group}" for base in groups.directories]

    def swept() -> bool:
        groups.command("another", Budgets(pids=5), Budgets()).finish()
        return everything_below(directories) == []

    assert eventually(swept)
    groups.forget("another")
    groups.forget(sandbox.template.group)
