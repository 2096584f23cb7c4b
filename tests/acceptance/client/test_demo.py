"""The demo, as a person runs it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from sandloom.cli.demo_project import fetch
from sandloom.cli.invocation import Stop
from sandloom.cli.local_service import LocalService
from tests.services.need import missing
from tests.services.process import ROOT, base_environment


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache directory with the project in it."""
    directory = tmp_path_factory.mktemp("cache")
    try:
        fetch(directory / "sandloom")
    except Stop as stop:
        missing(f"package index ({stop.message.splitlines()[0]})")
    return directory


def demo(data_dir: Path, **more: str) -> subprocess.CompletedProcess[str]:
    # HOME and TMPDIR are new, so that what stays behind shows.
    env = base_environment(PYTHONPATH=str(ROOT)) | {"HOME": str(data_dir), "TMPDIR": str(data_dir)} | more
    command = [sys.executable, "-m", "sandloom", "demo"]
    return subprocess.run(command, env=env, cwd=data_dir, capture_output=True, text=True, check=False)


@pytest.mark.bwrap
@pytest.mark.slow
def test_it_runs_a_real_suite_and_leaves_nothing_behind(cache: Path, data_dir: Path) -> None:
    done = demo(data_dir, XDG_CACHE_HOME=str(cache))
    assert done.returncode == 0, done.stderr
    tests, modules, failed = re.findall(r"(\d+) tests in (\d+) modules, (\d+) failed", done.stdout)[0]
    assert (int(tests) > 1000, int(failed)) == (True, 0)
    assert len(re.findall(r"^  tests\.\S+ +\d+ tests +ok", done.stdout, re.MULTILINE)) == int(modules)
    for line in ("SUCCEEDED, exit code 0", "its workspace is empty", "Both sandboxes are released", "sandloom up"):
        assert line in done.stdout
    assert list(data_dir.iterdir()) == []


@pytest.mark.bwrap
@pytest.mark.slow
def test_it_uses_a_service_that_is_up(cache: Path, data_dir: Path, service: LocalService) -> None:
    more = {"SANDBOX_BASE_URL": service.url, "SANDBOX_INTERNAL_TOKEN": service.token}
    done = demo(data_dir, XDG_CACHE_HOME=str(cache), **more)
    assert done.returncode == 0, done.stderr
    assert f"Using the service at {service.url}" in done.stdout
    assert "Starting" not in done.stdout


def test_without_a_package_index_it_says_what_to_do(data_dir: Path) -> None:
    nowhere = {"PIP_INDEX_URL": "http://127.0.0.1:1/simple", "PIP_CONFIG_FILE": "/dev/null", "PIP_RETRIES": "0"}
    done = demo(data_dir, **nowhere)
    assert done.returncode == 2
    assert "package index" in done.stderr
    assert "PIP_INDEX_URL" in done.stderr
    assert "Traceback" not in done.stderr


def test_another_file_under_the_pinned_name_is_not_run(data_dir: Path) -> None:
    planted = data_dir / "cache" / "sandloom" / "markdown-3.11.3.tar.gz"
    planted.parent.mkdir(parents=True)
    planted.write_bytes(b"something else")
    nowhere = {"PIP_INDEX_URL": "http://127.0.0.1:1/simple", "PIP_CONFIG_FILE": "/dev/null", "PIP_RETRIES": "0"}
    done = demo(data_dir, XDG_CACHE_HOME=str(data_dir / "cache"), **nowhere)
    assert done.returncode == 2
    assert "could not get it" in done.stderr
