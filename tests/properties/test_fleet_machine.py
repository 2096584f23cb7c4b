"""No reachable state of two workers, a reaper and a clock set by hand breaks a promise; a condition that is missing is
found."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from sandloom.db import Database, open_database
from sandloom.db.prepared import Write
from sandloom.execs import statements
from tests.properties.fleet_machine import FleetMachine
from tests.properties.fleet_model import Clock

#: Nothing is timed: a machine that does other things too takes its time.
pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def sqlite_database(_sqlite_template: Path, tmp_path: Path) -> Iterator[Database]:
    path = tmp_path / "fleet.db"
    shutil.copyfile(_sqlite_template, path)
    database = open_database(f"sqlite:///{path}")
    yield database
    database.dispose()


def run(db: Database, examples: int, **more: Any) -> None:
    FleetMachine.database, FleetMachine.clock = db, Clock(db)
    every = settings(
        max_examples=examples, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck), **more
    )
    run_state_machine_as_test(FleetMachine, settings=every)


def test_no_reachable_state_breaks_a_promise(sqlite_database: Database) -> None:
    run(sqlite_database, 12)


@pytest.mark.server
def test_the_same_on_postgresql(postgres_url: str) -> None:
    database = open_database(postgres_url)
    try:
        run(database, 3)
    finally:
        database.dispose()


def without(statement: Any, condition: str) -> Any:
    """The statement without the one condition that holds these words."""
    kept = tuple(part for part in statement._where_criteria if condition not in str(part))
    assert len(kept) == len(statement._where_criteria) - 1, condition
    mutant = statement._clone()
    mutant._where_criteria = kept
    return mutant


def claim_of_anything(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(statements, "CLAIM", Write(without(statements.CLAIMED, "execs.status =")))


@pytest.mark.parametrize("mutant", [claim_of_anything])
def test_a_condition_that_is_missing_is_found(
    sqlite_database: Database, monkeypatch: pytest.MonkeyPatch, mutant: Any
) -> None:
    mutant(monkeypatch)
    with pytest.raises(AssertionError):
        run(sqlite_database, 300, derandomize=True, database=None, phases=(Phase.generate,), print_blob=False)
