"""One embedded service, as ``sandloom up`` starts it, for all tests of clients."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sandloom import Client
from sandloom.cli.local_service import LocalService, local_service
from tests.services.bubblewrap import why_bwrap_fails
from tests.services.need import missing
from tests.services.process import ROOT, base_environment

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def service() -> Iterator[LocalService]:
    if reason := why_bwrap_fails():
        missing(f"usable bubblewrap ({reason})")
    with local_service(base_environment()) as running:
        yield running


@pytest.fixture
def client(service: LocalService) -> Iterator[Client]:
    with Client(service.url, service.token) as opened:
        yield opened


@pytest.fixture
def environment(service: LocalService) -> dict[str, str]:
    """What a client of the service has in its environment."""
    return base_environment(SANDBOX_BASE_URL=service.url, SANDBOX_INTERNAL_TOKEN=service.token, PYTHONPATH=str(ROOT))


@pytest.fixture
def sandloom(environment: dict[str, str], tmp_path: Path) -> Run:
    """Runs the command in an empty directory."""

    def run(*words: str, **more: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "sandloom", *words]
        settings: dict = {"cwd": tmp_path, "env": environment, "text": True, **more}
        return subprocess.run(command, capture_output=True, check=False, **settings)

    return run
