"""The spawner's own mount table: small, and never another one than the worker's where it matters."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from sandloom.execution.runner import Runner
from sandloom.execution.spec import SystemMount
from tests.isolation.kit import Sandbox, plan_for

pytestmark = [pytest.mark.bwrap, pytest.mark.root]


@pytest.fixture
def mine(level, report, state_dir, own_spawner):
    assert report.plan is not None
    own_spawner.start()
    return Sandbox(state_dir, plan_for(level, report.plan), Runner(own_spawner))


def mounted(pid: int | str, kinds: set[str]) -> list[str]:
    lines = Path(f"/proc/{pid}/mountinfo").read_text().splitlines()
    return [line for line in lines if line.split(" - ")[1].split()[0] in kinds]


def mount(*arguments: str | Path) -> None:
    subprocess.run(["mount", *arguments], check=True)


def test_it_holds_no_file_system_of_the_kernel_but_proc(mine, own_spawner):
    assert mine.run("true").verdict.exit_code == 0
    left_out = {"sysfs", "cgroup", "cgroup2", "devpts", "mqueue", "debugfs"}
    assert mounted("self", left_out) != []
    assert mounted(own_spawner.pid, left_out) == []
    assert len(mounted(own_spawner.pid, {"proc"})) == len(mounted("self", {"proc"}))


def test_what_is_mounted_and_unmounted_later_is_seen(mine):
    """Also where mounts are private to their table, as they are without an init system that shares them."""
    assert mine.shell("echo below > file").verdict.exit_code == 0
    options = f"mode=0700,uid={mine.uid},gid={mine.uid}"
    mount("-t", "tmpfs", "-o", options, "tmpfs", mine.workspace)
    try:
        assert mine.shell("ls; echo above > other").text == ""
        assert (mine.workspace / "other").read_text() == "above\n"
    finally:
        subprocess.run(["umount", mine.workspace], check=True)
    assert mine.shell("ls").text == "file"


def test_a_deployment_may_show_what_is_left_out(mine, own_spawner):
    plan = mine.template.plan
    shown = replace(plan, readonly_mounts=(*plan.readonly_mounts, SystemMount("/sys/kernel", "/sys/kernel")))
    expected = sorted(os.listdir("/sys/kernel"))
    assert expected != []
    for _ in range(2):
        assert sorted(mine.run("ls", "-A", "/sys/kernel", plan=shown).text.split()) == expected
    assert mine.run("true").verdict.exit_code == 0


def test_a_directory_that_is_gone_is_told_by_bwrap_and_changes_nothing(mine, own_spawner):
    gone = replace(mine.template.home_dirs, cache=str(mine.path / "gone"))
    assert "gone" in mine.run("true", home_dirs=gone).verdict.detail
    assert mine.run("true").verdict.exit_code == 0
    assert mounted(own_spawner.pid, {"sysfs"}) == []
