"""The adapters with the real packages, in an environment of their own, against the service of this run."""

from __future__ import annotations

import os
import re
import subprocess

import pytest

from tests.services.need import missing
from tests.services.process import ROOT

TESTS = ROOT / "tests" / "adapters"
BIN = ROOT / "var" / "adapters" / "bin"


@pytest.mark.bwrap
@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", sorted(path.name for path in TESTS.glob("test_*.py")))
def test_the_packages_find_what_they_expect(
    name: str, environment: dict[str, str], pytestconfig: pytest.Config
) -> None:
    if not (BIN / "pytest").exists():
        missing("packages of agent frameworks (scripts/bootstrap adapters)")
    command = [str(BIN / "python"), "-m", "pytest", "-c", str(TESTS / "pytest.ini"), "--confcutdir", str(TESTS), name]
    if not pytestconfig.getoption("--long"):
        # Whole trees, copied in every way there is, and each file operation in every way that its package knows.
        command += ["-k", "not (TestCopy or TestGet or TestPut or TestStandard)"]
    env = environment | {"PATH": f"{BIN}{os.pathsep}{environment['PATH']}"}
    done = subprocess.run(command, cwd=TESTS, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr
    assert re.search(r"\b[1-9]\d* passed", done.stdout)
