"""What an import costs is what was asked for."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.architecture.tree import ROOT

SERVER_PACKAGES = {"flask", "sqlalchemy", "celery", "kombu", "redis", "alembic", "boto3", "cryptography"}
HTTP = {"httpx", "pydantic"}


def loaded(statement: str) -> set[str]:
    code = f"{statement}\nimport sys\nprint(*sorted({{name.split('.')[0] for name in sys.modules}}))"
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(run.stdout.split())


@pytest.mark.parametrize(
    ("statement", "forbidden"),
    [
        ("import sandloom", SERVER_PACKAGES | HTTP),
        ("import sandloom.execution.spec", SERVER_PACKAGES | HTTP),
        ("from sandloom import Client", SERVER_PACKAGES),
        ("import sandloom.cli", SERVER_PACKAGES),
        ("import sandloom.sandboxes.service", {"flask", "celery", "kombu", "redis"}),
    ],
)
def test_import_loads_no_more_than_needed(statement, forbidden):
    assert loaded(statement) & forbidden == set()


def test_the_check_would_see_a_loaded_package():
    assert "sqlalchemy" in loaded("import sandloom.db")
