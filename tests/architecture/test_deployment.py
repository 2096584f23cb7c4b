"""Files that start the service elsewhere: parsed, and held against what the code offers."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import tomllib

import click
import pytest
import yaml

from sandloom.execution.seccomp_rules import ALWAYS
from tests.architecture.tree import ROOT


class Loader(yaml.SafeLoader):
    """Knows Compose's own tags as well."""


def overridden(loader: Loader, node: yaml.SequenceNode) -> list:
    return loader.construct_sequence(node)


for tag in ("!override", "!reset"):
    Loader.add_constructor(tag, overridden)

FILES = ("compose.yaml", "compose.fleet.yaml")
#: What an engine grants every container by itself.
GRANTED = {
    "AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "NET_RAW",
    "SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT",
}  # fmt: skip


def services(*names: str) -> dict:
    """By name; one that extends another has what that one says, unless it says otherwise."""
    found: dict = {}
    for name in names:
        found |= yaml.load((ROOT / name).read_text(encoding="utf-8"), Loader)["services"]
    for service in found.values():
        if "extends" in service:
            base = yaml.load((ROOT / service["extends"]["file"]).read_text(encoding="utf-8"), Loader)["services"]
            for key, value in base[service["extends"]["service"]].items():
                service[key] = (
                    {**value, **service[key]} if key == "environment" and key in service else (service.get(key, value))
                )
    return found


def test_the_worker_gets_what_bubblewrap_needs_and_no_privilege():
    for name, service in services(*FILES).items():
        assert not {"privileged", "pid", "network_mode", "devices", "userns_mode"} & set(service), name
        assert service["cap_drop"] == ["ALL"], name
        assert set(service.get("cap_add", [])) <= (GRANTED if name.startswith("worker") else set()), name
        assert service["read_only"] is True, name
        assert "no-new-privileges:true" in service["security_opt"], name
        assert ("systempaths=unconfined" in service["security_opt"]) == name.startswith("worker"), name
        assert not any("docker.sock" in volume for volume in service.get("volumes", [])), name


def test_the_worker_s_seccomp_profile_is_what_commands_lose_but_for_what_making_a_sandbox_needs():
    assert "seccomp=docker/seccomp.json" in services("compose.yaml")["worker"]["security_opt"]
    profile = json.loads((ROOT / "docker" / "seccomp.json").read_text(encoding="utf-8"))
    (denied,) = profile["syscalls"]
    assert (profile["defaultAction"], denied["action"]) == ("SCMP_ACT_ALLOW", "SCMP_ACT_ERRNO")
    needed = {"keyctl", "mount", "umount2", "pivot_root", "clone3", "setns", "quotactl", "quotactl_fd"}
    assert set(denied["names"]) == {call for calls in ALWAYS.values() for call in calls} - needed


def test_every_service_has_a_health_check_bounds_and_a_restart():
    for name, service in services(*FILES).items():
        assert {"mem_limit", "pids_limit", "init", "networks"} <= set(service), name
        if name != "schema":
            assert service["restart"] == "unless-stopped", name
            assert service["healthcheck"]["test"], name


def test_ports_are_open_on_this_machine_only_and_those_of_one_service_alone():
    for file, only in (("compose.yaml", {"api"}), ("compose.fleet.yaml", {"proxy"})):
        open_ports = {name: ports for name, service in services(file).items() if (ports := service.get("ports"))}
        assert set(open_ports) == only
        assert all(port.startswith("127.0.0.1:") for ports in open_ports.values() for port in ports)


def test_two_workers_of_one_machine_never_share_a_user_id():
    blocks = sorted(
        (s["environment"]["SANDBOX_UID_START"], s["environment"]["SANDBOX_UID_END"])
        for name, s in services("compose.fleet.yaml").items()
        if name.startswith("worker-")
    )
    assert len(blocks) == 3
    assert all(one[1] < other[0] for one, other in itertools.pairwise(blocks))


def test_no_password_has_a_default_and_one_command_makes_them_all(tmp_path):
    text = "".join((ROOT / name).read_text(encoding="utf-8") for name in FILES)
    file = tmp_path / "env"
    for expected in (0, 1):  # the second time it is there
        assert subprocess.run([ROOT / "docker" / "new-passwords", file], check=False).returncode in (
            expected,
            2 * expected,
        )
    made = dict(line.split("=") for line in file.read_text().splitlines())
    assert file.stat().st_mode & 0o077 == 0
    assert len(set(made.values())) == len(made) == 7
    assert all(re.fullmatch("[0-9a-f]{48}", value) for value in made.values())
    for name in made:
        assert f"${{{name}:?" in text, name
        assert f"${{{name}:-" not in text, name
    assert set(re.findall(r"\$\{([A-Z_]+):\?", text)) == set(made)


def test_servers_are_waited_for_by_their_health():
    found = services(*FILES)
    for name, service in found.items():
        for needed, condition in service.get("depends_on", {}).items():
            healthy = condition["condition"] == "service_healthy"
            assert not healthy or "healthcheck" in found[needed], f"{name} waits for {needed}"


def test_compose_files_name_settings_that_exist():
    from sandloom.settings import VARIABLES

    used = {
        name
        for service in services(*FILES).values()
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
    words += [s["command"][1] for s in services(*FILES).values() if s.get("command", [""])[0] == "sandloom"]
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
