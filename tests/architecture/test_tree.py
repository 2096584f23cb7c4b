from __future__ import annotations

import ast
import re

import pytest

from tests.architecture.tree import ROOT, own_files, shown

MOST_LINES = 400
MAY_BE_LONGER: frozenset[str] = frozenset()
NOT_WRITTEN_BY_HAND = ("requirements/", "LICENSE", "docs/cli.md")

# Written so that no line matches itself.
FOREIGN = {
    "the host of a package index": r"pypi[.]org|pythonhosted[.]org|deb[.]debian[.]org|registry[.]npmjs|proxy[.]golang",
    "a path of some machine": r"/wor[k]/|/opt/whee[l]s|/opt/pyp[i]\b|/root/[.]pyen[v]",
    "a folder beside the checkout": r"[.][.]/shar[e]d",
}


def test_no_file_is_longer_than_a_reader_bears():
    long = {}
    for path in own_files(".py", ".md", ".html", ".js", ".css", ".toml", ".yaml"):
        name = shown(path)
        lines = len(path.read_text(encoding="utf-8").splitlines())
        if lines > MOST_LINES and name not in MAY_BE_LONGER and not name.startswith(NOT_WRITTEN_BY_HAND):
            long[name] = lines
    assert long == {}


@pytest.mark.parametrize("what", FOREIGN)
def test_no_file_names(what):
    regex = re.compile(FOREIGN[what])
    found = []
    for path in own_files():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        found += [f"{shown(path)}:{n}" for n, line in enumerate(text.splitlines(), 1) if regex.search(line)]
    assert found == []


def test_every_test_file_holds_a_test():
    empty = [shown(path) for path in own_files(".py") if path.name.startswith("test_") and not holds_a_test(path)]
    assert empty == []
    assert holds_a_test(ROOT / "tests" / "architecture" / "test_tree.py")
    assert not holds_a_test(ROOT / "tests" / "architecture" / "tree.py")


def holds_a_test(path) -> bool:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return any(name.startswith(("test_", "Test")) for name in names)


def test_every_test_file_is_found_by_its_name():
    strangers = []
    for path in (ROOT / "tests").rglob("*.py"):
        functions = ast.parse(path.read_text(encoding="utf-8")).body
        has_test = any(isinstance(node, ast.FunctionDef) and node.name.startswith("test_") for node in functions)
        if has_test and not path.name.startswith("test_"):
            strangers.append(shown(path))
    assert strangers == []
