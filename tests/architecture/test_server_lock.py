"""The servers start with what their own lock installs, without anything that only the tests bring."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.tree import ROOT

MODULES = (
    "api.wsgi", "api.embedded", "workers.main", "workers.beat", "workers.embedded", "sandloom.cli", "sandloom.direct",
    "kombu.transport.redis", "flower", "gunicorn.app.wsgiapp",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_server_module_imports_from_the_server_lock_alone(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    install: list[str | Path] = [
        python,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--require-hashes",
    ]
    subprocess.run([*install, "-r", ROOT / "requirements" / "server.lock"], check=True)
    imports = "; ".join(f"import {module}" for module in MODULES)
    done = subprocess.run([python, "-c", imports], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
