"""A real spawner, a probed plan, and sandboxes at every level."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sandloom.execution.cgroups import Groups
from sandloom.execution.native.build import build
from sandloom.execution.probe import ProbeReport, ProbeRequest, probe
from sandloom.execution.process import Spawner
from sandloom.execution.reap import kill_bwraps_of, kill_uid_range
from sandloom.execution.runner import Runner
from sandloom.execution.spec import BudgetsUnavailable, Level, Network
from tests.isolation.kit import Sandbox, plan_for, probe_uid, uid_block
from tests.services.account import passable_directory, remove_tree
from tests.services.need import missing


@pytest.fixture(scope="session")
def state_dir() -> Iterator[Path]:
    path = passable_directory("sandloom-isolation")
    yield path
    remove_tree(path)


@pytest.fixture(scope="session")
def native(request: pytest.FixtureRequest) -> bool:
    """Whether spawners use the compiled helper. Marked NATIVE_AND_TWIN, tests run with and without."""
    wanted: bool = getattr(request, "param", True)
    if wanted and build() is None:
        if hasattr(request, "param"):
            missing("a C compiler")
        return False
    return wanted


@pytest.fixture(scope="session")
def spawner(native: bool) -> Iterator[Spawner]:
    spawner = Spawner(native=native)
    assert spawner.native is native
    yield spawner
    spawner.close()


@pytest.fixture(scope="session")
def report(state_dir: Path, spawner: Spawner) -> ProbeReport:
    """What this machine gives; shared, because probing runs commands."""
    return probe(ProbeRequest(state_dir, probe_uid(), probe_uid(), network=Network.ISOLATED), spawner)


@pytest.fixture(params=list(Level), ids=lambda level: level.value)
def level(request: pytest.FixtureRequest, report: ProbeReport) -> Level:
    wanted: Level = request.param
    if wanted not in report.supported_levels:
        if wanted is Level.BASIC and os.geteuid() != 0:
            pytest.skip("basic needs root")
        missing(f"isolation level {wanted.value}: {report.probe_failures}")
    return wanted


@pytest.fixture
def make_sandbox(level: Level, report: ProbeReport, state_dir: Path, spawner: Spawner) -> Callable[[], Sandbox]:
    def make() -> Sandbox:
        assert report.plan is not None
        return Sandbox(state_dir, plan_for(level, report.plan), Runner(spawner))

    return make


@pytest.fixture
def sandbox(make_sandbox: Callable[[], Sandbox]) -> Iterator[Sandbox]:
    made = make_sandbox()
    yield made
    if made.template.plan.uid_separation:
        kill_uid_range(made.uid, made.uid)


@pytest.fixture(scope="session")
def groups() -> Iterator[Groups]:
    try:
        opened = Groups.open(f"test-{os.getpid()}")
    except BudgetsUnavailable as error:
        pytest.skip(f"missing: cgroups that hold budgets: {error}")
    if opened.missing:
        opened.close()
        pytest.skip(f"missing: {opened.missing}")
    yield opened
    opened.close()


@pytest.fixture
def make_budgeted(
    level: Level, report: ProbeReport, state_dir: Path, spawner: Spawner, groups: Groups
) -> Iterator[Callable[..., Sandbox]]:
    """Makes sandboxes with budgets: ``make(memory_bytes=…, cpu_percent=…, pids=…)``."""
    made: list[Sandbox] = []

    def make(**budgets: int) -> Sandbox:
        assert report.plan is not None
        made.append(Sandbox(state_dir, plan_for(level, report.plan), Runner(spawner, groups), budgets=budgets))
        return made[-1]

    yield make
    for sandbox in made:
        groups.forget(sandbox.template.group)
        if sandbox.template.plan.uid_separation:
            kill_uid_range(sandbox.uid, sandbox.uid)


@pytest.fixture
def own_spawner(state_dir: Path, native: bool) -> Iterator[Spawner]:
    """A spawner that the test may kill."""

    def clean_up() -> None:
        if os.geteuid() == 0:
            kill_uid_range(uid_block().start, uid_block().end)
        else:
            kill_bwraps_of(str(state_dir))

    spawner = Spawner(clean_up=clean_up, native=native)
    yield spawner
    spawner.close()
