"""The direction of imports holds, and the linter would see it broken."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.tree import ROOT

#: contract → a module that is added, and what it imports although it must not.
FORBIDDEN = {
    "one-way": ("sandloom/db/planted.py", "import sandloom.sandboxes.service"),
    "execution-is-standalone": ("sandloom/execution/planted.py", "import sandloom.errors"),
    "only-workers-execute": ("sandloom/execs/planted.py", "import sandloom.execution.spec"),
    "domain-knows-no-framework": ("sandloom/reclaim/planted.py", "from celery import Celery"),
    "base-does-no-io": ("sandloom/contracts/planted.py", "import sqlalchemy"),
    "sdk-is-a-client": ("sandloom/sdk/planted.py", "import sandloom.db"),
    "direct-is-a-client": ("sandloom/direct/planted.py", "import sandloom.execs.service"),
    "batch-is-a-client": ("sandloom/batch/planted.py", "import sandloom.db"),
    "batch-plans-without-acting": ("sandloom/batch/plan.py", "import sandloom.batch.journal"),
    "routes-and-tasks-stay-thin": ("api/blueprints/planted.py", "import subprocess"),
    "decisions-are-pure": ("sandloom/sandboxes/placement.py", "import socket"),
}


def lint(directory: Path) -> subprocess.CompletedProcess[str]:
    argv = [str(Path(sys.executable).with_name("lint-imports")), "--no-logo", "--no-cache"]
    return subprocess.run(argv, cwd=directory, capture_output=True, text=True, timeout=110, check=False)


def contracts() -> dict[str, str]:
    """Contract id → its name."""
    text = (ROOT / ".importlinter").read_text(encoding="utf-8")
    return dict(re.findall(r"^\[importlinter:contract:(.+)\]\nname = (.+)$", text, re.MULTILINE))


def test_data_flows_one_way():
    result = lint(ROOT)
    assert result.returncode == 0, result.stdout + result.stderr
    assert f"{len(contracts())} kept, 0 broken" in result.stdout


@pytest.fixture(scope="module")
def broken(tmp_path_factory) -> str:
    """What the linter says about a copy in which every contract is broken once."""
    copy = tmp_path_factory.mktemp("checkout")
    shutil.copyfile(ROOT / ".importlinter", copy / ".importlinter")
    for package in ("sandloom", "api", "workers"):
        shutil.copytree(ROOT / package, copy / package, ignore=shutil.ignore_patterns("__pycache__"))
    for place, statement in FORBIDDEN.values():
        with (copy / place).open("a", encoding="utf-8") as module:
            module.write(f"\n{statement}\n")
    result = lint(copy)
    assert result.returncode == 1, result.stderr
    return result.stdout


@pytest.mark.parametrize("contract", FORBIDDEN)
def test_a_forbidden_import_is_caught(broken, contract):
    assert f"{contracts()[contract]} BROKEN" in broken


def test_every_contract_is_tried():
    assert set(FORBIDDEN) == set(contracts())
