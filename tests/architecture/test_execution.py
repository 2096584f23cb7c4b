"""The execution code runs with the standard library alone, also where nothing is installed."""

from __future__ import annotations

import ast
import subprocess
import sys

from tests.architecture.tree import ROOT, shown

PACKAGE = ROOT / "sandloom" / "execution"


def imported(path) -> set[str]:
    package = path.relative_to(ROOT).with_suffix("").parts
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            parents = package[: -node.level] if node.level else ()
            names.add(".".join([*parents, node.module or ""]).strip("."))
    return names


def test_it_imports_the_standard_library_and_itself_only():
    strangers = {
        f"{shown(path)} imports {name}"
        for path in PACKAGE.rglob("*.py")
        for name in imported(path)
        if name.split(".")[0] not in sys.stdlib_module_names and not f"{name}.".startswith("sandloom.execution.")
    }
    assert strangers == set()


def test_every_module_loads_without_installed_packages():
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in sorted(PACKAGE.rglob("*.py"))]
    modules = [name.removesuffix(".__init__") for name in names if not name.endswith("__main__")]
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r})\nimport " + ", ".join(modules)
    # -I -S: neither site-packages nor the environment.
    run = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert len(modules) > 5
