"""The wheel in an environment of its own, without extras: its client and its command work there against a service."""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from sandloom.cli.local_service import LocalService
from tests.services.need import missing
from tests.services.process import ROOT, base_environment

pytestmark = [pytest.mark.bwrap, pytest.mark.long]
PROGRAM = """
import asyncio, sys
from sandloom import AsyncClient, Client, SandloomError
from sandloom.errors import FileMissing
with Client.from_env() as client, client.sandbox() as box:
    box.files.write("/workspace/a", "alone")
    print(box.run(["cat", "a"]).stdout)
    try:
        box.files.read("/workspace/b")
    except FileMissing:
        print("missing")
async def main():
    async with AsyncClient.from_env() as client, client.sandbox() as box:
        print((await box.run("echo async")).stdout.strip())
asyncio.run(main())
print(sorted({name.split(".")[0] for name in sys.modules} & {"flask", "sqlalchemy", "celery"}))
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of the new environment."""
    directory = tmp_path_factory.mktemp("alone")
    source = directory / "source"
    shutil.copytree(ROOT / "sandloom", source / "sandloom", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copyfile(ROOT / name, source / name)
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(directory)]
    subprocess.run([*build, str(source)], check=True, capture_output=True)
    (wheel,) = directory.glob("*.whl")
    venv.create(directory / "venv", with_pip=True)
    interpreter = directory / "venv" / "bin" / "python"
    # The versions that are pinned, since others were not tried.
    lock = ["--require-hashes", "-r", str(ROOT / "requirements" / "base.lock")]
    pip = [str(interpreter), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    done = subprocess.run([*pip, *lock], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        missing(f"package index ({done.stderr.strip().splitlines()[-1]})")
    subprocess.run([*pip, "--no-deps", str(wheel)], check=True, capture_output=True)
    check = subprocess.run([*pip[:3], "check"], capture_output=True, text=True, check=False)
    assert check.returncode == 0, check.stdout
    return interpreter


def test_its_clients_and_its_command_work(python: Path, service: LocalService, tmp_path: Path) -> None:
    env = base_environment(SANDBOX_BASE_URL=service.url, SANDBOX_INTERNAL_TOKEN=service.token)

    def run(*argv: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(argv, env=env, cwd=tmp_path, capture_output=True, text=True, check=False)

    done = run(str(python), "-c", PROGRAM)
    assert done.stdout.splitlines() == ["alone", "missing", "async", "[]"], done.stderr
    listed = run(str(python), "-m", "pip", "list", "--format=freeze").stdout.lower()
    assert "sandloom==" in listed
    assert not {"flask", "celery", "sqlalchemy", "redis"} & {line.split("==")[0] for line in listed.splitlines()}
    command = str(python.with_name("sandloom"))
    assert run(command, "run", "--", "echo", "from the command").stdout == "from the command\n"
    server = run(command, "up")
    assert (server.returncode, "checkout" in server.stderr) == (2, True)
