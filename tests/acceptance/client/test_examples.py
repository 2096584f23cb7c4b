"""The examples of the Python clients, run as they stand."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from tests.services.process import ROOT, base_environment

pytestmark = pytest.mark.bwrap


def run(name: str, environment: dict[str, str], cwd: Path) -> list[str]:
    """The lines of its output."""
    argv = [sys.executable, str(ROOT / "examples" / name)]
    done = subprocess.run(argv, env=environment, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def check_sdk(environment: dict[str, str], cwd: Path) -> None:
    assert run("sdk.py", environment, cwd) == [
        "ran: SUCCEEDED, stdout '6 words\\n'",
        'read: {"be": 2, "not": 1, "or": 1, "to": 2}',
        "listed: ['count.py', 'out']",
        "downloaded: 1 file, with progress",
        "uploaded: 'count.json\\n'",
        "failed: exit code 3",
        "refused: SANDBOX_FILE_NOT_FOUND: /workspace/nothing does not exist – change the call",
        "beside it: 'still free\\n'",
        "cancelled: True, CANCELLED",
    ]


def check_async_sdk(environment: dict[str, str], cwd: Path) -> None:
    lines = ["squares: ['1', '4', '9']", "seen: ['line 1', 'line 2', 'line 3']"]
    assert run("async_sdk.py", environment, cwd) == lines


def check_streaming(environment: dict[str, str], cwd: Path) -> None:
    """Chunks may join lines, so what was seen is compared as a whole."""
    *events, ended = run("streaming.py", environment, cwd)
    numbered = [line for line in events if re.match(r"\d+ \w+ ", line)]
    assert [int(line.split()[0]) for line in numbered] == list(range(1, len(numbered) + 1))
    text = "\n".join(events)
    assert (
        [text.count(f"line {n}") for n in range(1, 5)] == [text.count(f"warning {n}") for n in range(1, 5)] == [1] * 4
    )
    assert numbered[0] == "1 status QUEUED"
    assert numbered[-1].endswith(" status FAILED")
    assert ended == "ended: FAILED, exit code 5, stdout 'line 1\\nline 2\\nline 3\\nline 4\\n'"


def test_where_a_batch_leaves_its_files_unless_told_git_does_not_look() -> None:
    assert runpy.run_path(str(ROOT / "examples" / "batch.py"))["DIRECTORY"].parent == ROOT / "var"
    assert "/var/" in (ROOT / ".gitignore").read_text("utf-8").splitlines()


@pytest.mark.parametrize(
    ("given", "named"),
    [({}, "SANDBOX_BROKER_URL"), ({"SANDBOX_BROKER_URL": "redis://127.0.0.1"}, "SANDBOX_INTERNAL_TOKEN")],
)
def test_the_example_of_a_fleet_names_what_it_needs(given: dict[str, str], named: str) -> None:
    argv = [sys.executable, str(ROOT / "examples" / "celery_direct.py")]
    env = base_environment(PYTHONPATH=str(ROOT), **given)
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n"), named in done.stderr) == (2, "", 1, True)


CHECKS = {"sdk": check_sdk, "async_sdk": check_async_sdk, "streaming": check_streaming}


@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
def test_it_does_what_it_says(check, environment: dict[str, str], tmp_path: Path) -> None:
    check(environment, tmp_path)
