"""A virtualenv with numpy and a node_modules: built on one worker, used on another."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from sandloom import Client
from tests.acceptance.worker_fleet import WorkerFleet, until
from tests.services.account import free_port
from tests.services.need import missing
from tests.services.packages import download
from tests.services.rclone import S3Server

pytestmark = [pytest.mark.bwrap, pytest.mark.server, pytest.mark.long, pytest.mark.timeout(900)]

ENVIRONMENT = """
python3 -m venv --without-pip /envs/science
/envs/science/bin/python $(echo wheels/pip-*.whl)/pip install -q --no-index --no-cache-dir --find-links wheels pip numpy
"""
MODULES = """
import json, pathlib
for number in range(500):
    package = pathlib.Path(f"/workspace/app/node_modules/@scope{number % 10}/package-{number}")
    (package / "lib/deep").mkdir(parents=True)
    about = {"name": package.name, "version": "1.0.0", "main": "lib/index.js"}
    (package / "package.json").write_text(json.dumps(about))
    (package / "lib/index.js").write_text("module.exports = require('./deep/part0.js') + 1;\\n")
    for part in range(18):
        (package / f"lib/deep/part{part}.js").write_text(f"module.exports = {number + part};\\n")
"""
REQUIRE = """
const fs = require('fs'), top = '/envs/modules/node_modules';
let sum = 0;
for (const scope of fs.readdirSync(top))
    for (const name of fs.readdirSync(`${top}/${scope}`)) sum += require(`${top}/${scope}/${name}`);
console.log(sum);
"""


@pytest.fixture
def client(postgres_url: str, redis_url: str, s3: S3Server, data_dir: Path) -> Iterator[Client]:
    """Of two workers with one slot each."""
    settings = {"SANDBOX_WORKER_CAPACITY": "1", **s3.environment("real-trees")}
    fleet = WorkerFleet(postgres_url, redis_url, data_dir, **settings)
    port = str(free_port())
    fleet.start_worker("w1")
    fleet.start_worker("w2")
    fleet.start_api(port)
    until(lambda: answers(port))
    with Client(f"http://127.0.0.1:{port}", "a-token-of-the-test") as opened:
        yield opened
    fleet.close()


def answers(port: str) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/health", trust_env=False).is_success
    except httpx.HTTPError:
        return False


def test_what_one_sandbox_built_another_one_uses_on_another_worker(client: Client, data_dir: Path) -> None:
    wheels = data_dir / "wheels"
    if problem := download(wheels, "--only-binary", ":all:", "numpy", "pip"):
        missing(f"numpy and pip from PyPI: {problem}")
    with client.sandbox("builder") as builder, client.sandbox("user") as user:
        assert builder.route.worker_id != user.route.worker_id
        builder.files.upload_tree(wheels, "/workspace/wheels")
        built = builder.run(ENVIRONMENT, timeout=600)
        assert built.ok, built.stderr
        builder.files.write("/workspace/make.py", MODULES)
        assert builder.run("python3 make.py", timeout=120).ok
        science = builder.publish_template("science", "/envs/science")
        modules = builder.publish_template("modules", "/workspace/app")
        user.attach_templates(f"science@{science.digest}", f"modules@{modules.digest}")

        used = user.run(["/envs/science/bin/python", "-c", "import numpy; print(numpy.arange(10).sum())"])
        assert (used.stdout, used.stderr) == ("45\n", "")
        listed = user.run(["/envs/science/bin/pip", "list", "--format", "freeze", "--disable-pip-version-check"])
        assert {line.partition("==")[0] for line in listed.stdout.split()} == {"numpy", "pip"}, listed.stderr
        assert user.run("find /envs/modules/node_modules -type f | wc -l").stdout.strip() == "10000"
        if shutil.which("node"):
            required = user.run(["node", "-e", REQUIRE])
            assert required.stdout.strip() == str(sum(range(500)) + 500), required.stderr
        assert not user.run("echo x > /envs/science/new").ok
