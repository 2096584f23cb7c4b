"""Files that start the service elsewhere: parsed, and held against what the code offers."""

from __future__ import annotations

import re
import tomllib

import click
import pytest
import yaml

from tests.architecture.tree import ROOT


class Loader(yaml.SafeLoader):
    """Knows Compose's own tag as well."""


def overridden(loader: Loader, node: yaml.SequenceNode) -> list:
    return loader.construct_sequence(node)


Loader.add_constructor("!override", overridden)


def services(*names: str) -> dict:
    found: dict = {}
    for name in names:
        found |= yaml.load((ROOT / name).read_text(encoding="utf-8"), Loader)["services"]
    return found


def test_the_worker_gets_what_bubblewrap_needs_and_no_privilege():
    worker = services("compose.yaml")["worker"]
    assert {"seccomp=unconfined", "systempaths=unconfined"} <= set(worker["security_opt"])
    for name, service in services("compose.yaml", "compose.fleet.yaml").items():
        assert not {"privileged", "cap_add", "pid", "network_mode"} & set(service), name


def test_ports_are_open_on_this_machine_only():
    ports = [
        port for service in services("compose.yaml", "compose.fleet.yaml").values() for port in service.get("ports", [])
    ]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_no_password_has_a_default():
    text = (ROOT / "compose.yaml").read_text(encoding="utf-8")
    for name in ("POSTGRES_PASSWORD", "REDIS_PASSWORD", "SANDBOX_INTERNAL_TOKEN", "SANDBOX_SECRET_KEY"):
        assert f"${{{name}:?" in text, name
        assert f"${{{name}:-" not in text, name


def test_servers_are_waited_for_by_their_health():
    found = services("compose.yaml")
    for name, service in found.items():
        for needed, condition in service.get("depends_on", {}).items():
            healthy = condition["condition"] == "service_healthy"
            assert not healthy or "healthcheck" in found[needed], f"{name} waits for {needed}"


def test_compose_files_name_settings_that_exist():
    from sandloom.settings import VARIABLES

    used = {
        name
        for service in services("compose.yaml", "compose.fleet.yaml").values()
        for name in service.get("environment", {})
        if name.startswith("SANDBOX_")
    }
    used |= set(re.findall(r"^(SANDBOX_\w+)=", (ROOT / ".env.example").read_text(encoding="utf-8"), re.MULTILINE))
    assert used
    assert {name.removeprefix("SANDBOX_") for name in used} - {n.removeprefix("SANDBOX_") for n in VARIABLES} == set()


def test_what_the_image_copies_is_there_and_not_ignored():
    text = (ROOT / "docker" / "Dockerfile").read_text(encoding="utf-8")
    sources = [word for line in re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE) for word in line.split()]
    kept = re.findall(r"^!(\S+)$", (ROOT / ".dockerignore").read_text(encoding="utf-8"), re.MULTILINE)
    assert len(sources) > 5
    for source in sources:
        assert (ROOT / source).exists(), source
        assert source.split("/")[0] in kept, source


def test_the_procfile_and_compose_run_commands_that_exist():
    from sandloom.cli.app import cli

    words = re.findall(r"\bsandloom ([a-z]+)", (ROOT / "Procfile").read_text(encoding="utf-8"))
    words += [
        s["command"][1]
        for s in services("compose.yaml", "compose.fleet.yaml").values()
        if s.get("command", [""])[0] == "sandloom"
    ]
    assert set(words) >= {"api", "worker", "beat", "flower", "db"}
    assert isinstance(cli, click.Group)
    assert set(words) <= set(cli.commands)


def pins(name: str) -> dict[str, str]:
    text = (ROOT / "requirements" / f"{name}.lock").read_text(encoding="utf-8")
    return dict(re.findall(r"^([a-zA-Z0-9._-]+)==(\S+) \\$", text, re.MULTILINE))


@pytest.mark.parametrize("name", ["base", "server", "dev"])
def test_a_lock_pins_with_hashes_and_names_no_address(name):
    text = (ROOT / "requirements" / f"{name}.lock").read_text(encoding="utf-8")
    assert "://" not in text
    assert re.findall(r"^--.*", text, re.MULTILINE) == []
    for block in re.split(r"\n(?=[a-zA-Z])", text.strip()):
        if "==" in block:
            assert "--hash=sha256:" in block, block.splitlines()[0]
    assert len(pins(name)) == len(re.findall(r"^[a-zA-Z0-9._-]+==", text, re.MULTILINE)) > 10


def test_the_locks_agree_with_each_other_and_with_the_project():
    base, server, dev = pins("base"), pins("server"), pins("dev")
    assert base.items() <= server.items() <= dev.items()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for wanted, locked in (
        (project["dependencies"], base),
        (project["optional-dependencies"]["fleet"], server),
        (project["optional-dependencies"]["server"], server),
        (project["optional-dependencies"]["dev"], dev),
    ):
        names = {re.split(r"[\[<>=! ]", requirement)[0].lower() for requirement in wanted}
        assert names <= set(locked)


def test_the_makefile_has_the_promised_targets():
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z]+):", text, re.MULTILINE))
    assert {"demo", "test", "lint", "bench", "fleet", "lock", "clean"} <= targets
