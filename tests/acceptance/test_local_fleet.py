"""`make fleet`: the Procfile over servers of its own, verified while a worker is killed, then ended."""

from __future__ import annotations

import base64
import contextlib
import json
import shlex
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from sandloom import Client
from sandloom.cli.verify_fleet import FleetChecks, Patience
from sandloom.cli.verify_report import Report
from tests.acceptance.client.lying_proxy import Lie, LyingProxy, field
from tests.acceptance.worker_fleet import CLI, PERIODS
from tests.services.account import free_port
from tests.services.process import ROOT, Process, base_environment

pytestmark = [pytest.mark.server, pytest.mark.bwrap, pytest.mark.timeout(600)]

CHECKS = {
    "health", "authorization", "isolation level", "resolve", "exec", "exec id", "event stream", "timeout", "cancel",
    "files", "byte channel", "inside", "separation", "suspend and resume", "generation", "release", "placement",
    "another profile", "replicas", "a worker stops", "others work on", "it leaves the view", "its command fails",
    "new sandboxes go elsewhere", "what it owned is reclaimed", "a superseded generation is refused",
}  # fmt: skip


@pytest.fixture
def ports() -> tuple[int, int]:
    """The first of two neighbouring free ports, and one for Flower."""
    while True:
        port = free_port()
        with socket.socket() as neighbour, contextlib.suppress(OSError):
            neighbour.bind(("127.0.0.1", port + 1))
            return port, free_port()


@pytest.fixture
def fleet(postgres, redis_server, data_dir, tmp_path, ports):
    # The shared servers are not used: asking for them says by name what is missing where there are none.
    directory = data_dir / "fleet"
    argv = [sys.executable, "-m", "scripts.fleet", "--directory", directory]
    argv += ["--port", str(ports[0]), "--flower-port", str(ports[1])]
    # A killed worker is to be missed soon, and one that stands still for some seconds is not.
    environment = base_environment(**PERIODS | {"SANDBOX_HEARTBEAT_TTL_SECONDS": "8"})
    with Process(argv, log_path=tmp_path / "fleet.log", env=environment) as process:
        for name in ("worker-1", "worker-2", "worker-other"):
            process.wait_for_output(rf"{name} .*worker started")
        for text in (r"api-1 .*Booting worker", r"api-2 .*Booting worker", "Visit me at"):
            process.wait_for_output(text)
        yield process, directory


def verify(directory: Path, port: int, token: str) -> dict:
    kill = [sys.executable, "-m", "scripts.fleet", "--directory", str(directory), "--kill", "{worker_id}"]
    urls = [f"http://127.0.0.1:{port}", f"http://127.0.0.1:{port + 1}"]
    argv = [*CLI, "verify", "--fleet", "--json", "--stop-worker-command", shlex.join(kill)]
    argv += [word for url in urls for word in ("--base-url", url)]
    environment = base_environment(SANDBOX_INTERNAL_TOKEN=token)
    done = subprocess.run(argv, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode in (0, 1), done.stderr
    assert token not in done.stdout + done.stderr
    return json.loads(done.stdout)


def flower_answers(port: int, password: str) -> int:
    login = base64.b64encode(f"sandloom:{password}".encode()).decode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}/workers", headers={"Authorization": f"Basic {login}"})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


def command_lines() -> str:
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            lines.append(path.read_text(errors="replace"))
    return "\n".join(lines)


def pids_of(directory: Path) -> list[int]:
    return [int(path.read_text()) for path in (directory / "run").glob("*.pid")]


def secrets_of(directory: Path) -> list[str]:
    files = ["token", "secret-key", "flower-password", "postgres/password"]
    for name in files:
        assert (directory / name).stat().st_mode & 0o077 == 0, name
    conf = (directory / "redis" / "redis.conf").read_text().splitlines()
    redis = [line.split()[1] for line in conf if line.startswith("requirepass ")]
    return [(directory / name).read_text().strip() for name in files] + redis


def checked_with_lies(flag: Path, port: int, token: str) -> dict[str, str]:
    """Nothing is stopped; one replica hides worker-2 from then on, and answers with other files."""

    def hidden(workers: list[dict]) -> list[dict]:
        return [row for row in workers if not flag.exists() or row["worker_id"] != "worker-2"]

    lies = [
        Lie(r"^GET .*/diagnostics/runtime", field(workers=hidden)),
        Lie(r"^GET .*/files\?path=%2Fworkspace%2Fshared", field(content_base64="b3RoZXI=")),
    ]
    report = Report(lambda outcome: None)
    with (
        LyingProxy(f"http://127.0.0.1:{port + 1}", lies) as proxy,
        Client(f"http://127.0.0.1:{port}", token) as first,
        Client(proxy.url, token) as second,
    ):
        FleetChecks([first, second], report, f"touch {flag}").run()
    return {outcome.name: outcome.detail for outcome in report.outcomes if outcome.status == "fail"}


def test_a_fleet_passes_its_verification_loses_a_worker_and_leaves_nothing_running(fleet, ports, tmp_path, monkeypatch):
    process, directory = fleet
    secrets = secrets_of(directory)
    assert len(secrets) == 5
    pids = pids_of(directory)
    assert len(pids) == 7
    monkeypatch.setattr(Patience, "of", lambda worker: Patience(2, 2, 2))
    failed = checked_with_lies(tmp_path / "flag", ports[0], secrets[0])
    assert "reads another file" in failed.pop("replicas")
    assert "still said to run" in failed.pop("its command fails")
    assert "still held" in failed.pop("what it owned is reclaimed")
    assert "'generation': 1" in failed.pop("a superseded generation is refused").replace(
        "generation=", "'generation': "
    )
    assert failed.keys() <= {"new sandboxes go elsewhere"}, failed

    report = verify(directory, ports[0], secrets[0])
    problems = [check for check in report["checks"] if check["status"] != "pass"]
    assert problems == []
    assert {check["name"] for check in report["checks"]} == CHECKS
    assert report["passed"] is True
    assert (flower_answers(ports[1], "wrong"), flower_answers(ports[1], secrets[2])) == (401, 200)
    lines = command_lines()
    assert "postgres" in lines
    assert [secret for secret in secrets if secret in lines] == []
    postmaster = int((directory / "postgres" / "data" / "postmaster.pid").read_text().split()[0])
    assert process.stop(signal.SIGINT, timeout_seconds=90) == 0
    assert [pid for pid in [*pids, postmaster] if Path("/proc", str(pid)).exists()] == []
    assert [secret for secret in secrets if secret in process.output()] == []
