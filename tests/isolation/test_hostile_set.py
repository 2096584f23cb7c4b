"""The hostile set: at each level every program is contained, or is listed as not contained and reaches its aim."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sandloom.execution import etc
from sandloom.execution.reap import kill_uid_range
from sandloom.execution.runner import Runner
from sandloom.execution.spec import Level, Network, Plan, Reason
from tests.isolation.hostile.catalogue import PROGRAMS, not_contained
from tests.isolation.hostile.program import STRICT, Program
from tests.isolation.kit import Sandbox, plan_for
from tests.isolation.stage import MAX_OUTPUT_BYTES, Host, Outcome, Stage

pytestmark = pytest.mark.bwrap

PAGE = Path(__file__).parents[2] / "docs" / "isolation.md"
CONTROLS = {
    whom: [name for name, program in PROGRAMS.items() if program.control.partition(":")[0] == whom]
    for whom in ("user", "root", "netns")
}
BOUND = [name for name, program in PROGRAMS.items() if program.bound]
BUDGETS = {"memory_bytes": 96 << 20, "pids": 30}


@pytest.fixture(scope="module")
def host(state_dir) -> Iterator[Host]:
    directory = state_dir / "host"
    directory.mkdir(mode=0o711)
    opened = Host(directory)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def stages(report, state_dir, spawner, host):
    """Makes a stage once for each level and network."""
    assert report.plan is not None
    made: dict[Plan, Stage] = {}

    def get(level, network=Network.ISOLATED) -> Stage:
        plan = replace(plan_for(level, report.plan), network=network, resolv_conf=etc.resolv_conf(network))
        if plan not in made:
            made[plan] = Stage(lambda plan: Sandbox(state_dir, plan, Runner(spawner)), plan, host)
        return made[plan]

    yield get
    for stage in made.values():
        stage.close()
        if os.geteuid() == 0:
            kill_uid_range(stage.attacker.uid, stage.attacker.uid)


@pytest.fixture(scope="module")
def played(stages):
    """What came of all the programs that can share a command, run once for each level and network."""
    known: dict[tuple[Level, str], dict[str, Outcome]] = {}

    def get(level: Level, network: str) -> dict[str, Outcome]:
        if (level, network) not in known:
            stage = stages(level, Network(network))
            names = [
                name
                for name, program in PROGRAMS.items()
                if program.network == network and not program.alone and playable(program)
            ]
            known[level, network], ran = stage.play(*names)
            assert (ran.verdict.reason, ran.verdict.exit_code) == (Reason.EXIT, 0), ran
            assert stage.harm() == []
        return known[level, network]

    return get


def playable(program: Program) -> bool:
    return not program.planted or os.geteuid() == 0


def check(program: Program, level: Level, outcome: Outcome) -> None:
    assert outcome.kind in ("reached", "held", "ended"), outcome.text
    shared_uid = program.by_uid and os.geteuid() != 0
    assert (outcome.kind == "reached") == (level.value in program.at or shared_uid), outcome


@pytest.mark.parametrize("name", [name for name, program in PROGRAMS.items() if not program.alone])
def test_a_program_is_contained_as_documented(played, level, name):
    program = PROGRAMS[name]
    if not playable(program):
        pytest.skip(f"{name} needs root, which puts there what it attacks")
    check(program, level, played(level, program.network)[name])


@pytest.mark.parametrize("name", [name for name, program in PROGRAMS.items() if program.alone])
def test_a_violent_program_is_contained_as_documented(stages, level, name):
    stage = stages(level)
    outcomes, ran = stage.play(name)
    check(PROGRAMS[name], level, outcomes[name])
    assert ran.verdict.reason in (Reason.EXIT, Reason.SIGNAL), ran.verdict
    assert ran.verdict.error is None
    assert len(ran.stderr) <= MAX_OUTPUT_BYTES
    assert stage.harm() == []


@pytest.fixture(scope="module")
def controlled(stages, report):
    """What came of the same programs outside, run once for each kind of control."""
    known: dict[str, dict[str, Outcome]] = {}

    def get(whom: str) -> dict[str, Outcome]:
        if whom not in known:
            known[whom] = stages(report.supported_levels[-1]).control(whom, *CONTROLS[whom])
        return known[whom]

    return get


@pytest.mark.root
@pytest.mark.parametrize(("whom", "name"), [(whom, name) for whom, names in CONTROLS.items() for name in names])
def test_the_same_program_reaches_its_aim_outside(controlled, whom, name):
    """Without this a program that is only wrong would count as contained."""
    outcome = controlled(whom)[name]
    if outcome.text in ("ENOSYS", "EAFNOSUPPORT"):
        pytest.skip(f"missing: this kernel has not what {name} attacks")
    if outcome.text in ("EPERM", "EACCES") and lacking_capabilities():
        pytest.skip(f"missing: capabilities of root, for {name}: {lacking_capabilities():#x}")
    assert outcome.kind == "reached", outcome


def lacking_capabilities() -> int:
    """Those that root has not here, as a set of bits."""
    status = Path("/proc/self/status").read_text()
    every = (1 << int(Path("/proc/sys/kernel/cap_last_cap").read_text()) + 1) - 1
    return every & ~int(status.split("CapEff:")[1].split()[0], 16)


def test_budgets_contain_what_is_not_contained_without(make_budgeted, level, host, stages):
    bounded = Stage(lambda plan: make_budgeted(**BUDGETS), stages(level).attacker.template.plan, host)
    try:
        for name in BOUND:
            outcomes, ran = bounded.play(name)
            assert outcomes[name].kind in ("held", "ended"), outcomes
            assert ran.verdict.reason in (Reason.OOM, Reason.PIDS, Reason.EXIT, Reason.SIGNAL), ran.verdict
            assert bounded.harm() == []
    finally:
        bounded.close()


def test_the_set_is_large_and_every_program_says_what_it_tries():
    assert len(PROGRAMS) >= 60
    assert [name for name, program in PROGRAMS.items() if not program.tries.endswith((".", ")"))] == []


def test_the_page_lists_exactly_what_is_not_contained():
    assert not_contained() in PAGE.read_text()
    assert STRICT in PROGRAMS["reads_the_kernels_release"].at
