"""The wheel holds the client side only: ``api`` and ``workers`` would collide in other people's environments."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import zipfile

import pytest

from tests.architecture.tree import ROOT


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> zipfile.ZipFile:
    copy = tmp_path_factory.mktemp("source")
    for name in ("sandloom", "api", "workers", "migrations", "tests"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copyfile(ROOT / name, copy / name)
    argv = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "-q",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
        "-w",
        "out",
        ".",
    ]
    subprocess.run(argv, cwd=copy, check=True, timeout=110)
    (built,) = (copy / "out").glob("*.whl")
    return zipfile.ZipFile(built)


def test_it_holds_nothing_but_sandloom(wheel):
    tops = {name.split("/")[0] for name in wheel.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"sandloom"}


def test_it_holds_every_module_and_the_mark_of_types(wheel):
    modules = {path.relative_to(ROOT).as_posix() for path in (ROOT / "sandloom").rglob("*.py")}
    assert modules | {"sandloom/py.typed"} <= set(wheel.namelist())


def test_its_commands_exist(wheel):
    (name,) = [name for name in wheel.namelist() if name.endswith("entry_points.txt")]
    text = wheel.read(name).decode()
    assert "sandloom = sandloom.cli:main" in text
    scripts = text.partition("[console_scripts]")[2].partition("\n[")[0]
    commands = re.findall(r" = ([\w.]+):(\w+)$", scripts, re.MULTILINE)
    assert len(commands) == 2
    for module, function in commands:
        code = f"import importlib; assert callable(importlib.import_module({module!r}).{function})"
        subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
