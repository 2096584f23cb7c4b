"""Real probes of this machine."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from pathlib import Path
from typing import Any

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


@pytest.mark.bwrap
@pytest.mark.parametrize(("control", "code"), [("auto", 0), ("required", 2)])
def test_a_disk_budget_says_how_it_is_held_and_required_is_not_content_with_measuring(control: str, code: int) -> None:
    done = doctor(BUDGET_INODES="1000", RESOURCE_CONTROL=control)
    report = json.loads(done.stdout)
    if report["capabilities"]["disk_budget"]["mode"] == "quota":
        pytest.skip("this file system has project quotas")
    assert report["capabilities"]["disk_budget"]["mode"] == "measured"
    assert done.return_value == code
    assert any("only be measured" in problem for problem in report["problems"]) is (code == 2)


@pytest.mark.bwrap
def test_servers_are_dialled_and_named_and_only_a_local_one_may_be_open() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"redis://127.0.0.1:{listener.getsockname()[1]}/0"
        threading.Thread(target=answer_all, args=(listener,), daemon=True).start()
        here = dialled(BROKER_URL=url)
        there = dialled(BROKER_URL=url, ENVIRONMENT="staging")
        apart = json.loads(doctor(BROKER_URL=url, ENVIRONMENT="staging", NETWORK_MODE="isolated").stdout)
        listener.shutdown(socket.SHUT_RDWR)
    assert any("SANDBOX_BROKER_URL" in name for name in here["capabilities"]["control_plane"]["open"])
    assert here["can_start"]
    assert any("SANDBOX_BROKER_URL" in line and "requirepass" in line for line in here["warnings"])
    assert not there["can_start"]
    assert any("SANDBOX_BROKER_URL" in line for line in there["problems"])
    assert apart["can_start"]


def dialled(**settings: str) -> Any:
    """The report, of a broker that answered; again while a loaded machine lets the time for an answer pass."""
    for _ in range(20):
        report = json.loads(doctor(**settings).stdout)
        if not any("SANDBOX_BROKER_URL" in name for name in report["capabilities"]["control_plane"]["closed"]):
            break
    return report


def answer_all(listener: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while True:
            peer, _ = listener.accept()
            with peer, contextlib.suppress(OSError):
                peer.recv(100)
                peer.sendall(b"+PONG\r\n")


def test_no_bwrap_is_blocked_with_2() -> None:
    done = doctor(BUBBLEWRAP_PATH="/nonexistent/bwrap")
    report = json.loads(done.stdout)
    assert done.return_value == 2
    assert (report["status"], report["can_start"]) == ("blocked", False)
    assert "/nonexistent/bwrap" in report["problems"][0]


@pytest.mark.bwrap
@pytest.mark.parametrize(("name", "value"), [("NETWORK_MODE", "allowlist"), ("TELEMETRY_SINK", "x")])
def test_what_cannot_be_enforced_is_blocked_and_named(name: str, value: str) -> None:
    done = doctor(**{name: value})
    assert done.return_value == 2
    assert f"SANDBOX_{name}" in json.loads(done.stdout)["problems"][0]
