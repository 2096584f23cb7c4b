"""`make fleet`: the whole Procfile over servers of its own, driven once through each replica, and ended in order."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from tests.services.account import free_port
from tests.services.process import ROOT, Process, base_environment

pytestmark = [pytest.mark.server, pytest.mark.bwrap, pytest.mark.timeout(240)]


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
    with Process(argv, log_path=tmp_path / "fleet.log") as process:
        for text in (r"worker\.1 .*worker started", r"worker\.2 .*worker started"):
            process.wait_for_output(text, timeout_seconds=120)
        for text in (r"api\.1 .*Booting worker", r"api\.2 .*Booting worker", "Visit me at"):
            process.wait_for_output(text, timeout_seconds=60)
        yield process, directory, f"http://127.0.0.1:{ports[0]}", f"http://127.0.0.1:{ports[0] + 1}"


def quickstart(base_url: str, token: str) -> subprocess.CompletedProcess[str]:
    environment = base_environment(SANDBOX_BASE_URL=base_url, SANDBOX_INTERNAL_TOKEN=token)
    argv = [sys.executable, str(ROOT / "examples" / "quickstart.py")]
    return subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=100, check=False)


def alive(pid_file: Path) -> bool:
    return pid_file.exists() and Path("/proc", pid_file.read_text().split()[0]).exists()


def test_two_replicas_and_two_workers_do_the_lifecycle_and_leave_nothing_running(fleet):
    process, directory, first, second = fleet
    token = (directory / "token").read_text().strip()
    for base_url in (first, second):
        run = quickstart(base_url, token)
        assert run.returncode == 0, run.stdout + run.stderr
    request = urllib.request.Request(f"{second}/healthz", headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        assert json.load(answer)["workers"]["live"] == 2
    postmaster = directory / "postgres" / "data" / "postmaster.pid"
    assert alive(postmaster)
    assert process.stop(timeout_seconds=90) == 0
    assert not alive(postmaster)
    for name in ("token", "secret-key"):
        assert (directory / name).stat().st_mode & 0o077 == 0
    assert token not in process.output()
