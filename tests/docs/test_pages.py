"""What the pages name exists: commands, make targets, routes, settings, files, methods."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import click
import pytest
from pydantic import TypeAdapter

from sandloom import errors, ids
from sandloom.cli.app import cli
from sandloom.contracts.rest import Body, EnvName, ExecBody, Label, LabelValue, ResolveBody
from sandloom.contracts.templates import TemplateRef
from sandloom.execution import isolation
from sandloom.mcp.tools import TOOLS
from sandloom.sdk import Client, Files, Process, Result, Sandbox
from sandloom.sdk.tenants import TenantCalls
from sandloom.settings import CLIENT_NAMES, VARIABLES
from tests.architecture.tree import ROOT

PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
TEXT = "\n".join(page.read_text("utf-8") for page in PAGES)
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


@each_page
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", page.read_text("utf-8")):
        name, _, anchor = target.partition("#")
        if "://" in name:
            continue
        file = page.parent / name if name else page
        assert file.exists(), target
        headings = re.findall(r"^#+ (.+)$", file.read_text("utf-8"), re.MULTILINE)
        known = {re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-") for heading in headings}
        assert not anchor or anchor in known, target


@each_page
def test_settings_that_are_named_exist(page: Path) -> None:
    named = set(re.findall(r"\bSANDBOX_[A-Z_]+[A-Z]\b", page.read_text("utf-8")))
    codes = set(errors.REGISTRY)
    families = {name for name in named if any(known.startswith(f"{name}_") for known in VARIABLES)}
    assert named - set(VARIABLES) - CLIENT_NAMES - codes - families - {"SANDBOX_TEST"} == set()


def test_make_targets_that_are_named_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    named = set(re.findall(r"(?:^|`)make ([a-z]+)", TEXT, re.MULTILINE))
    assert named >= {"demo", "test", "fleet", "lint"}
    assert named <= targets


def test_commands_that_are_named_exist() -> None:
    assert isinstance(cli, click.Group)
    named = set(re.findall(r"(?:^|`|bin/)sandloom ([a-z]+)", TEXT, re.MULTILINE))
    assert named >= {"up", "doctor", "run"}
    assert named <= set(cli.commands)


def _method(options: str) -> str:
    """What curl sends for these options."""
    if "-X DELETE" in options:
        return "DELETE"
    if "-T" in options:
        return "PUT"
    return "POST" if "--json" in options else "GET"


def test_routes_that_are_called_exist() -> None:
    from api.blueprints import GROUPS

    operations = [operation for group in GROUPS for operation in group.operations]
    served = {(operation.method, re.sub("<[^>]+>", "<>", operation.rule)) for operation in operations}
    readme = (ROOT / "README.md").read_text("utf-8")
    script = next(block for block in re.findall(r"```bash\n(.*?)```", readme, re.DOTALL) if "api()" in block)
    calls = re.findall(r"api ([^\n]*?(?:\n {8}[^\n]*?)?)\$S(/[^\s\"?)]*)", script)
    assert len(calls) == len(re.findall(r"\bapi [^(]", script)) == 11
    for options, path in calls:
        rule = re.sub(r"/(readme|(?:hello|count)-\$G)(?=/|$)", "/<>", f"/api/v1/sandboxes{path}")
        assert (_method(options), rule) in served
    for path in ("/docs", "/redoc", "/openapi.json"):
        assert f"`{path}`" in readme
        assert ("GET", path) in served


def test_calls_of_the_python_page_exist() -> None:
    page = (ROOT / "docs" / "python.md").read_text("utf-8")
    owners = {"box.files": Files, "box": Sandbox, "p": Process, "result": Result, "Client": Client, "c": Client}
    named = re.findall(r"\b(box\.files|box|p|result|Client|c)\.([a-z_]+)", page)
    assert len(named) > 20
    for owner, name in named:
        if (owner, name) in (("box", "files"), ("c", "tenant")):
            continue
        kind = owners[owner]
        assert hasattr(kind, name) or name in getattr(kind, "model_fields", {}), f"{owner}.{name}"


def _table(page: Path, columns: int) -> list[list[str]]:
    """The cells of the rows of its tables with so many columns."""
    lines = re.findall(r"^\| (.+) \|$", page.read_text("utf-8"), re.MULTILINE)
    return [cells for line in lines if len(cells := line.split(" | ")) == columns]


def test_what_calls_return_is_what_the_python_page_says() -> None:
    owners = {"c": Client, "box": Sandbox, "box.files": Files, "p": Process, "c.tenant": TenantCalls}
    said: dict[str, str] = {}
    for calls, returned in _table(ROOT / "docs" / "python.md", 2):
        if (kind := re.match(r"`([^`]+)`", returned)) and re.fullmatch(r"(`[a-z_.]+`(, )?)+", calls):
            said |= dict.fromkeys(re.findall(r"`([^`]+)`", calls), kind[1])
    found = {
        f"{prefix}.{name}": inspect.signature(method).return_annotation
        for prefix, owner in owners.items()
        for name, method in vars(owner).items()
        if inspect.isfunction(method) and not name.startswith("_") and (prefix, name) != ("box", "fenced")
    }
    assert said == found


def test_the_page_of_names_says_what_the_code_takes() -> None:
    rules = {name: rule for name, rule, _ in _table(ROOT / "docs" / "names.md", 3)}
    label, value, variable = (TypeAdapter(kind).json_schema() for kind in (Label, LabelValue, EnvName))

    def of(body: type[Body], name: str) -> dict[str, Any]:
        found: dict[str, Any] = body.model_json_schema()["properties"][name]
        return found

    reserved = ", ".join(f"`{name}`" for name in sorted(ids.RESERVED_NAMES))
    assert rules["`sandbox_id`"] == f"`{ids.NAME_PATTERN.strip('^$')}`, but not {reserved}"
    assert of(ResolveBody, "sandbox_id")["pattern"] == of(ExecBody, "exec_id")["pattern"] == ids.NAME_PATTERN
    for name in ("workspace_scope_id", "profile"):
        schema = of(ResolveBody, name)
        assert rules[f"`{name}`"].startswith(f"{schema['minLength']} to {schema['maxLength']} characters")
    assert rules["name of a template"] == f"`{ids.TEMPLATE_NAME_PATTERN}`"
    reference = TypeAdapter(TemplateRef).json_schema()["pattern"]
    assert reference == f"^{ids.TEMPLATE_NAME_PATTERN}(@sha256:[0-9a-f]{{64}})?$"
    assert rules["reference to a template"] == "its name, or `name@sha256:` and 64 of `[0-9a-f]`"
    assert rules["`worker_id`"] == f"`{ids.WORKER_ID_PATTERN.strip('^$')}`"
    assert rules["tenant"] == f"`{ids.TENANT_PATTERN.strip('^$')}`"
    assert rules["key of a label"].startswith(f"{label['minLength']} to {label['maxLength']} characters")
    assert rules["value of a label"].startswith(f"0 to {value['maxLength']} characters")
    argv = of(ExecBody, "argv")
    longest, most = f"{argv['items']['maxLength']:,} characters", f"at most {argv['maxItems']} arguments"
    assert rules["argument in `argv`, value in `env`"] == f"0 to {longest} of any kind but NUL; {most}"
    assert f"At most {longest} make one argument" in (python := (ROOT / "docs" / "python.md").read_text("utf-8"))
    assert f"{most} an argv" in python
    assert rules["name in `env`"] == f"`{variable['pattern'].strip('^$')}`, at most {variable['maxLength']} characters"


def test_the_page_of_mcp_says_which_tools_take_a_generation() -> None:
    rows = _table(ROOT / "docs" / "mcp.md", 3)
    said = {tool: generation for tool, _, generation in rows if tool.startswith("`")}
    found = {}
    for tool in TOOLS.values():
        schema = tool.arguments.model_json_schema()
        needed = "generation" in schema.get("required", ())
        given = "generation" in schema.get("properties", ())
        found[f"`{tool.name}`"] = "needed" if needed else "may be given" if given else "not taken"
    assert said == found


def test_the_isolation_page_says_what_the_levels_are() -> None:
    page = (ROOT / "docs" / "isolation.md").read_text("utf-8")
    rows = {
        cells[0].strip(): [cell.strip().startswith("yes") for cell in cells[1:4]]
        for line in re.findall(r"^\| (.+) \|$", page, re.MULTILINE)
        if len(cells := line.split("|")) == 4
    }
    shapes = list(isolation.LEVELS.values())
    assert rows["PID namespace, with a `/proc` of its own"] == [shape.pid_namespace for shape in shapes]
    assert rows["cgroup namespace"] == [shape.cgroup_namespace for shape in shapes]


def test_nothing_is_promised_with_a_number_that_nobody_measured() -> None:
    assert re.findall(r"\b\d+(?:\.\d+)? ?(?:ms|milliseconds|times faster|per second)\b", TEXT) == []
