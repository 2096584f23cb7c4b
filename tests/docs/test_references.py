"""Pages that are made from the code say what the code says."""

from __future__ import annotations

import re
import tomllib

import pytest

import sandloom
from sandloom.cli import reference as cli_reference
from sandloom.settings import VARIABLES
from sandloom.settings import reference as settings_reference
from tests.architecture.tree import ROOT


def page(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@pytest.mark.parametrize(("name", "module"), [("docs/settings.md", settings_reference), ("docs/cli.md", cli_reference)])
def test_a_generated_page_ends_with_what_the_code_generates(name: str, module) -> None:
    assert page(name).endswith("\n" + module.markdown()), f"run: python -m {module.__name__}"


def test_every_setting_has_a_meaning() -> None:
    rows = re.findall(r"^\| `(SANDBOX_\w+)` \| (.+?) \| (.+) \|$", settings_reference.markdown(), re.MULTILINE)
    assert {name for name, _, _ in rows} == set(VARIABLES)
    assert all(len(meaning) >= 9 for _, _, meaning in rows)


def test_every_command_and_option_has_a_help() -> None:
    sections = cli_reference.markdown().split("### ")[1:]
    assert len(sections) > 15
    for section in sections:
        lines = section.splitlines()
        assert len(lines[2]) > 10, lines[0]
        assert not [line for line in lines if re.fullmatch(r"- `.+`:", line)], lines[0]


def test_the_version_is_the_project_s() -> None:
    (version,) = re.findall(r'^version = "(.+)"$', page("pyproject.toml"), re.MULTILINE)
    assert version == sandloom.__version__
    assert f"/dist/sandloom-{version}-py3-none-any.whl" in page("README.md")


def test_no_page_installs_from_an_index_and_each_extra_that_is_named_exists() -> None:
    project = tomllib.loads(page("pyproject.toml"))["project"]
    known = set(project["optional-dependencies"])
    for file in [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "examples").glob("*.py")]:
        text = file.read_text("utf-8")
        assert not re.findall(r"pip install '?sandloom(?!\[[a-z-]+\] @ file:)", text), file.name
        assert set(re.findall(r"(?:sandloom|'\.)\[([a-z-]+)\]", text)) <= known, file.name
