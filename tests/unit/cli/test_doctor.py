"""Real probes of this machine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from sandloom.cli.app import cli
from sandloom.cli.invocation import Invocation


def doctor(**settings: str) -> Result:
    environ = {f"SANDBOX_{name}": value for name, value in settings.items()}
    invocation = Invocation(environ, Path("/nonexistent/.env"))
    # The group replaces its object, so the command is called by itself.
    return CliRunner().invoke(cli.commands["doctor"], ["--json"], obj=invocation, standalone_mode=False)


@pytest.mark.bwrap
def test_a_usable_machine_names_its_level_and_what_it_proved() -> None:
    done = doctor()
    report = json.loads(done.stdout)
    assert done.return_value == 0
    assert (report["schema_version"], report["status"], report["can_start"]) == (1, "usable", True)
    found = report["capabilities"]
    assert found["selected_level"] == found["supported_levels"][-1]
    assert found["bubblewrap"]["path"].startswith("/")
    refused = {feature for failure in found["probe_failures"] for feature in failure["features"]}
    assert found["seccomp"] is ("seccomp" not in refused)
    assert found["resource_control"]["budgets"] is bool(found["resource_control"]["controllers"])


@pytest.mark.bwrap
def test_budgets_that_are_off_are_neither_tried_nor_missed() -> None:
    done = doctor(RESOURCE_CONTROL="off")
    found = json.loads(done.stdout)["capabilities"]
    assert done.return_value == 0
    assert found["resource_control"] == {"mode": "off", "budgets": False, "controllers": []}
    assert not any("cgroup_limits" in failure["features"] for failure in found["probe_failures"])


@pytest.mark.bwrap
def test_an_explicit_level_is_that_one() -> None:
    supported = json.loads(doctor().stdout)["capabilities"]["supported_levels"]
    weakest = supported[0]
    assert json.loads(doctor(ISOLATION_LEVEL=weakest).stdout)["capabilities"]["selected_level"] == weakest


def test_no_bwrap_is_blocked_with_2() -> None:
    done = doctor(BUBBLEWRAP_PATH="/nonexistent/bwrap")
    report = json.loads(done.stdout)
    assert done.return_value == 2
    assert (report["status"], report["can_start"]) == ("blocked", False)
    assert "/nonexistent/bwrap" in report["problems"][0]


@pytest.mark.bwrap
@pytest.mark.parametrize(
    ("name", "value"), [("BUDGET_INODES", "10"), ("NETWORK_MODE", "allowlist"), ("TELEMETRY_SINK", "x")]
)
def test_what_cannot_be_enforced_is_blocked_and_named(name: str, value: str) -> None:
    done = doctor(**{name: value})
    assert done.return_value == 2
    assert f"SANDBOX_{name}" in json.loads(done.stdout)["problems"][0]
