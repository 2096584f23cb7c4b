"""The unified hierarchy: what can be had of it without controllers, and all of it where it has them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandloom.execution import cgroup_base, cgroup_files, cgroup_layout
from sandloom.execution.spawner import groups as group_processes
from sandloom.execution.spec import BudgetsUnavailable


@pytest.fixture
def own() -> str:
    """The directory of this process's group in the unified hierarchy."""
    found = cgroup_layout.version_2(Path("/proc/self/mountinfo").read_text(), Path("/proc/self/cgroup").read_text())
    if found is None:
        pytest.skip("missing: a mounted unified cgroup hierarchy")
    return found.directories["memory"]


@pytest.fixture
def group(own: str) -> Iterator[str]:
    path = f"{own}/sandloom-test-{os.getpid()}"
    try:
        os.makedirs(f"{path}/below")
    except OSError as error:
        pytest.skip(f"missing: a unified cgroup hierarchy to write to: {error}")
    yield path
    assert cgroup_files.remove(path, timeout_seconds=5)


def start_in(group: str) -> subprocess.Popen[bytes]:
    """A process that joins the group as a command does, and stays."""
    script = 'echo 0 > "$0/cgroup.procs" && echo in && exec sleep 300'
    process = subprocess.Popen(["/bin/sh", "-c", script, group], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"in\n"
    return process


def test_a_group_is_killed_as_a_whole(group):
    first, second = start_in(group), start_in(f"{group}/below")
    assert not cgroup_files.remove_empty(group)
    kill_file = f"{group}/{group_processes.KILL_FILE}"
    if not os.path.exists(kill_file):
        pytest.skip("missing: cgroup.kill, kernel 5.14")
    group_processes.kill(kill_file)
    assert (first.wait(20), second.wait(20)) == (-9, -9)
    for process in (first, second):
        assert process.stdout is not None
        process.stdout.close()


def test_removing_ends_what_is_in_it(group):
    process = start_in(f"{group}/below")
    # Reaped by this test, as a command is by its spawner.
    assert not cgroup_files.remove(group, timeout_seconds=0)
    assert process.wait(20) == -9
    assert cgroup_files.remove(group, timeout_seconds=5)
    assert not os.path.exists(group)
    assert process.stdout is not None
    process.stdout.close()


def test_killing_a_group_that_is_gone_is_nothing(group):
    group_processes.kill(f"{group}/gone/{group_processes.KILL_FILE}")
    assert group_processes.kill(f"{group}/gone/cgroup.procs") == 0
    assert cgroup_files.remove(f"{group}/gone", timeout_seconds=0)


def test_a_hierarchy_without_the_controllers_holds_no_budget(own):
    had = (cgroup_files.read(f"{own}/cgroup.controllers") or "").split()
    if set(had) & set(cgroup_layout.CONTROLLERS):
        pytest.skip("missing: a unified hierarchy without controllers; the other tests use the one that is here")
    with pytest.raises(BudgetsUnavailable, match="has no controller memory"):
        cgroup_base.make_2(own, "test")
