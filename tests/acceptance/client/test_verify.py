"""`sandloom verify` against a real service, and against one that is made to answer wrongly at every check."""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from sandloom import Client
from sandloom.cli.local_service import LocalService
from sandloom.cli.verify_fleet import FleetChecks
from sandloom.cli.verify_report import Report
from sandloom.cli.verify_service import ServiceChecks
from tests.acceptance.client.lying_proxy import Lie, LyingProxy, accepted, field

pytestmark = pytest.mark.bwrap
Run = Callable[..., subprocess.CompletedProcess[Any]]
IN_SANDBOXES = [
    "exec", "exec id", "event stream", "timeout", "cancel", "files", "byte channel", "inside", "separation",
    "suspend and resume", "generation", "release",
]  # fmt: skip


def flipped(text: str) -> str:
    """Another content of the same length."""
    return base64.b64encode(bytes(255 - byte for byte in base64.b64decode(text))).decode()


def without_one_event(status: int, body: bytes) -> tuple[int, bytes]:
    frames = body.split(b"\n\n")
    return status, b"\n\n".join(frame for frame in frames if b"id: 3\n" not in frame)


def basic(rows: list[dict]) -> list[dict]:
    return [{**row, "isolation_level": "basic"} for row in rows]


def twice(text: str) -> str:
    return base64.b64encode(base64.b64decode(text) * 2).decode()


#: What is altered, and what the check that it concerns must say.
LIES = {
    "authorization": (Lie(r"^GET /api/v1/sandboxes\?", accepted), "instead of UNAUTHORIZED"),
    "isolation level": (Lie(r"^GET .*/diagnostics/runtime", field(workers=basic)), "strict is demanded"),
    "exec": (Lie(r"^POST .*/exec .*exit 7", field(exit_code=0)), "'FAILED', 0, 'out'"),
    "exec id": (Lie(r"^GET .*/files\?path=%2Fworkspace%2Fran", field(content_base64=twice)), "it ran 2 times"),
    "event stream": (Lie(r"^GET .*/events", without_one_event, once=True), "numbered [1, 2, 4"),
    "timeout": (Lie(r"^POST .*/exec .*alive; sleep", field(status="FAILED")), "FAILED"),
    "cancel": (Lie(r"^GET .*/exec/[^/]+\?wait=25 ", field(status="SUCCEEDED")), "SUCCEEDED"),
    "files": (Lie(r"^GET .*/files\?path=%2Fworkspace%2Ftree", field(content_base64=flipped)), "not read as it was"),
    "byte channel": (Lie(r"^GET .*/files\?path=%2Fworkspace%2Flarge", field(content_base64=flipped)), "not read as"),
    "inside": (Lie(r"^POST .*/exec .*NoNewPrivs", field(stdout=lambda text: text + "writes /usr\n")), "may write to"),
    "separation": (Lie(r"^POST .*/exec .*find /workspace", field(stdout="/workspace/mark")), "another sandbox finds"),
    "suspend and resume": (Lie(r"^GET .*/files\?path=%2Fworkspace%2Fkept", field(content_base64=flipped)), "another"),
    "generation": (Lie(r"^POST .*/files/mkdir .*late", accepted), "instead of STALE_SANDBOX_ROUTE"),
    "release": (Lie(r"^POST .*/files/mkdir .*late", accepted), "instead of STALE_SANDBOX_ROUTE"),
}


def checked(url: str, token: str, *, strict: bool = False) -> Report:
    report = Report(lambda outcome: None)
    with Client(url, token) as client:
        ServiceChecks(client, lambda other: Client(url, other), token, report, strict=strict).run()
    return report


def test_a_good_service_passes_and_what_was_not_looked_at_is_no_pass(sandloom: Run, client: Client) -> None:
    before = {route.sandbox_id for route in client.sandboxes(status="READY")}
    done = sandloom("verify")
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert [line.partition("  ")[2].partition(":")[0] for line in lines[:-1]][-len(IN_SANDBOXES) :] == IN_SANDBOXES
    assert lines[-1] == f"{len(lines) - 1} passed, 0 failed, 0 skipped"
    assert {route.sandbox_id for route in client.sandboxes(status="READY")} == before

    report = Report(lambda outcome: None)
    FleetChecks([client], report, None).run()
    by_status = [(outcome.name, outcome.status) for outcome in report.outcomes]
    assert by_status == [
        ("placement", "pass"), ("another profile", "skip"), ("replicas", "skip"), ("a worker stops", "skip"),
    ]  # fmt: skip
    assert not report.passed
    assert {route.sandbox_id for route in client.sandboxes(status="READY")} == before


def test_every_check_fails_where_the_service_answers_wrongly(service: LocalService) -> None:
    with LyingProxy(service.url, [lie for lie, _ in LIES.values()]) as proxy:
        report = checked(proxy.url, service.token, strict=True)
    assert {outcome.name for outcome in report.outcomes if outcome.status == "pass"} == {"health", "resolve"}
    failed = {outcome.name: outcome.detail for outcome in report.outcomes if outcome.status == "fail"}
    assert failed.keys() == LIES.keys() == {"authorization", "isolation level", *IN_SANDBOXES}
    assert {name: detail for name, detail in failed.items() if LIES[name][1] not in detail} == {}
    for lie, name in (
        (Lie("GET /healthz", field(workers={"live": 0, "total": 0})), "health"),
        (Lie("^POST /api/v1/sandboxes/verify-[^/]+ ", field(workspace="kept")), "resolve"),
    ):
        with LyingProxy(service.url, [lie]) as proxy:
            report = checked(proxy.url, service.token)
        assert [outcome.name for outcome in report.outcomes if outcome.status == "fail"] == [name]
        assert not report.passed


def test_the_answer_for_programs_says_what_failed(sandloom: Run, environment: dict[str, str]) -> None:
    done = sandloom("verify", "--json", env={**environment, "SANDBOX_BASE_URL": "http://127.0.0.1:1"})
    document = json.loads(done.stdout)
    assert (done.returncode, document["passed"], document["fail"], document["pass"]) == (1, False, 1, 0)
    assert document["checks"][0]["detail"].startswith("SERVICE_UNAVAILABLE: ")
    assert sandloom("verify", "--stop-worker-command", "true").returncode == 2
