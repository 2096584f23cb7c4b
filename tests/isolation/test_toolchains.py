"""Toolchains in sandboxes of every level: they are checked by real runs, they build, and every shell finds them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sandloom.execution import toolchain_checks
from sandloom.execution.native import library
from sandloom.execution.native.build import build
from sandloom.execution.probe import ProbeRequest
from sandloom.execution.spec import Limits
from sandloom.execution.toolchain_checks import Found, Toolchains
from sandloom.execution.toolchains import TOOLCHAINS, ToolchainRequest
from tests.isolation.kit import probe_uid, with_enough_time
from tests.isolation.test_inside import SHELLS
from tests.services.account import passable_directory, remove_tree
from tests.services.need import missing

pytestmark = [pytest.mark.bwrap, pytest.mark.slow]

Check = Callable[[ToolchainRequest], Toolchains]


@pytest.fixture
def check(sandbox, spawner, monkeypatch) -> Iterator[Check]:
    """Makes toolchains ready for ``sandbox``, whose commands get their environment."""
    monkeypatch.setattr(toolchain_checks, "TIMEOUT_SECONDS", 100.0)
    state = passable_directory("sandloom-toolchains")
    all_made = []

    def make(request: ToolchainRequest) -> Toolchains:
        build(library.EXE_SOURCE)
        probed = ProbeRequest(state, probe_uid(), probe_uid())
        made = Toolchains(request, probed, sandbox.template.plan, spawner)
        all_made.append(made)
        sandbox.template = replace(sandbox.template, plan=made.plan, runtime_env=made.env, limits=Limits())
        return made

    yield make
    for made in all_made:
        made.report()
    remove_tree(state)


def need(*programs: str) -> None:
    for program in programs:
        if not shutil.which(program, path="/usr/local/bin:/usr/bin:/bin"):
            missing(f"{program}: see scripts/install-test-programs")


def need_native(sandbox) -> None:
    if not sandbox.template.plan.pid_namespace and library.find(library.EXE_SOURCE) is None:
        missing("a C compiler")


def works(sandbox, script: str) -> str:
    ran = sandbox.shell(f"set -e; {script}")
    assert ran.verdict.exit_code == 0, ran
    return ran.text


def test_each_that_is_installed_is_available_with_its_version(sandbox, check):
    need("python3", "node", "go", "rustc", "java")
    made = check(ToolchainRequest(tuple(TOOLCHAINS)))
    need_native(sandbox)
    report = made.report()
    assert {name: found.found for name, found in report.checks.items()} == dict.fromkeys(TOOLCHAINS, Found.AVAILABLE)
    assert all(any(letter.isdigit() for letter in said) for said in report.details.values())
    assert report.to_dict()["available"] == list(TOOLCHAINS)


def test_rust_builds_and_runs(sandbox, check):
    need("cargo", "cc")
    check(ToolchainRequest(("rust",)))
    need_native(sandbox)
    script = (
        "cargo -q init --vcs none --name p p; cd p; cargo -q build --offline; target/debug/p; rustc src/main.rs; ./main"
    )
    assert works(sandbox, script).split("\n") == ["Hello, world!"] * 2


def test_java_builds_and_runs(sandbox, check):
    need("javac")
    check(ToolchainRequest(("java",)))
    (sandbox.workspace / "P.java").write_text(
        'public class P { public static void main(String[] a) { System.out.println("built"); } }\n'
    )
    script = 'javac P.java; java P; "$JAVA_HOME/bin/java" P; test -e "$JAVA_HOME/lib/modules"'
    assert works(sandbox, script).split() == ["built", "built"]


def test_plain_and_login_shells_find_the_same(sandbox, check):
    made = check(ToolchainRequest(("node", "rust", "python", "java")))
    order = [place for place in made.env["PATH"].split(":") if place.startswith("/envs/")]
    assert order == ["/envs/.node/bin", "/envs/.rust/bin", "/envs/.python/bin"]
    for shell, flag in SHELLS:
        ran = sandbox.run(shell, flag, 'echo "$PATH|$npm_config_cache|$CARGO_HOME"; command -v python3')
        assert ran.text.splitlines()[0] == f"{made.env['PATH']}|/cache/npm|/cache/cargo", ran


def test_what_is_installed_into_the_environments_is_found(sandbox, check):
    check(ToolchainRequest(("python", "node")))
    script = (
        "mkdir -p /envs/.node/bin $(python3 -c 'import site; print(site.getusersitepackages())');"
        "printf '#!/bin/sh\\necho tool' > /envs/.node/bin/tool; chmod +x /envs/.node/bin/tool;"
        "echo 'said = 42' > $(python3 -c 'import site; print(site.getusersitepackages())')/mine.py;"
        "python3 -c 'import mine; print(mine.said)'; tool"
    )
    assert works(sandbox, script).split() == ["42", "tool"]


def test_cargo_and_maven_ask_the_mirrors(sandbox, check):
    need("cargo", "mvn")
    nowhere = "http://127.0.0.1:9/mirror"
    check(ToolchainRequest(("rust", "java"), cargo_registry_url=nowhere, maven_repository_url=f"{nowhere}?a&b"))
    need_native(sandbox)
    ran = sandbox.shell("cargo init -q --vcs none --name p p; cd p; echo 'x = \"1\"' >> Cargo.toml; cargo -q fetch")
    assert ran.verdict.exit_code != 0
    assert nowhere in ran.stderr.decode()
    (sandbox.workspace / "pom.xml").write_text(
        "<project><modelVersion>4.0.0</modelVersion><groupId>g</groupId><artifactId>a</artifactId><version>1</version>"
        "</project>"
    )
    ran = sandbox.shell("mvn -B -q compile; ls /cache/maven/org")
    assert f"{nowhere}?a&b" in ran.text


def test_missing_failed_and_timed_out_are_told_apart(sandbox, check, monkeypatch):
    never = replace(TOOLCHAINS["go"], program="no-such-program")
    breaks = replace(TOOLCHAINS["node"], program="sh", check="echo it broke; exit 3")
    lasts = replace(TOOLCHAINS["python"], program="sh", check="sleep 600")
    monkeypatch.setattr(toolchain_checks, "TOOLCHAINS", {"go": never, "node": breaks, "python": lasts})
    reports = []

    def attempt(seconds: float) -> bool:
        monkeypatch.setattr(toolchain_checks, "TIMEOUT_SECONDS", seconds)
        reports.append(check(ToolchainRequest(("go", "node", "python"))).report())
        found = [each.found for each in reports[-1].checks.values()]
        assert found[2] is Found.TIMED_OUT
        return Found.TIMED_OUT not in found[:2]

    with_enough_time(attempt)
    report = reports[-1]
    assert [found.found for found in report.checks.values()] == [Found.MISSING, Found.FAILED, Found.TIMED_OUT]
    assert report.checks["node"].said == "it broke"
    shown = report.to_dict()
    assert shown["available"] == []
    assert "it broke" not in str(shown)
    assert any("no-such-program" in hint for hint in shown["isolation_hints"])
    at_basic = not sandbox.template.plan.pid_namespace
    assert shown["unavailable_at_this_level"] == (["node"] if at_basic else [])
    assert any("SANDBOX_ISOLATION_LEVEL" in hint for hint in shown["isolation_hints"]) is at_basic


def test_a_home_that_commands_do_not_see_is_named(check, tmp_path: Path):
    report = check(ToolchainRequest(("java",), java_home=tmp_path)).report()
    assert any(str(tmp_path) in hint and "SANDBOX_READONLY_MOUNTS" in hint for hint in report.hints)


def test_commands_cannot_change_the_launchers(sandbox, check):
    check(ToolchainRequest(("java",)))
    for change in ("echo x > /run/toolchains/maven/settings.xml", "touch /run/toolchains/x", "mkdir /.cargo"):
        assert sandbox.shell(change).verdict.exit_code != 0
    if os.geteuid() == 0:
        assert sandbox.run("stat", "-c", "%U", "/run/toolchains/maven/settings.xml").text.strip() != "sandbox"
