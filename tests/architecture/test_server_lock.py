"""The servers start with what their own lock installs, without anything that only the tests bring."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import packages_distributions

from packaging.utils import canonicalize_name

from tests.architecture.test_deployment import pins
from tests.architecture.tree import ROOT

MODULES = (
    "api.wsgi", "api.embedded", "workers.main", "workers.beat", "workers.embedded", "sandloom.cli", "sandloom.direct",
    "kombu.transport.redis", "flower", "gunicorn.app.wsgiapp",
)  # fmt: skip
#: Imports as if some top-level modules were not installed.
WITHOUT = """
import sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {hidden!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Hidden())
{imports}
"""


def test_every_server_module_imports_from_the_server_lock_alone() -> None:
    hidden = others()
    assert {"pytest", "hypothesis", "mypy"} <= hidden
    done = imported(MODULES, hidden)
    assert (done.returncode, done.stderr) == (0, "")


def test_what_is_not_in_the_lock_cannot_be_imported() -> None:
    assert "No module named 'hypothesis'" in imported(("hypothesis",), others()).stderr


def imported(modules: tuple[str, ...], hidden: set[str]) -> subprocess.CompletedProcess[str]:
    imports = "\n".join(f"import {module}" for module in modules)
    code = WITHOUT.format(hidden=hidden, imports=imports)
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)


def others() -> set[str]:
    """Top-level modules that only packages outside the lock bring."""
    locked = {canonicalize_name(name) for name in pins("server")} | {"sandloom"}
    return {
        module
        for module, packages in packages_distributions().items()
        if not any(canonicalize_name(package) in locked for package in packages)
    }
