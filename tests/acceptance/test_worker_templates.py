"""Templates over workers that share an object store, over a restart, and over a suspend."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandloom.errors import TemplateInvalid
from sandloom.ids import new_id
from sandloom.sandboxes.records import Route
from tests.acceptance.worker_fleet import WorkerFleet
from tests.services.rclone import S3Server

pytestmark = [pytest.mark.bwrap, pytest.mark.server, pytest.mark.slow]

BUILD = """
python3 -m venv --without-pip /envs/tools
echo 'ANSWER = 42' > $(echo /envs/tools/lib/python*/site-packages)/answer.py
"""
USE = "/envs/tools/bin/python -c 'import answer; print(answer.ANSWER)'"


@pytest.fixture
def bucket() -> str:
    return f"templates-{new_id()}"


@pytest.fixture
def fleet(postgres_url: str, redis_url: str, s3: S3Server, bucket: str, data_dir: Path) -> Iterator[WorkerFleet]:
    opened = WorkerFleet(
        postgres_url,
        redis_url,
        data_dir,
        SANDBOX_WORKER_CAPACITY="1",
        **s3.environment(bucket),
    )
    yield opened
    opened.close()


def call(fleet: WorkerFleet, route: Route, what: str, **arguments: Any) -> dict[str, Any]:
    named = {"sandbox_id": route.key.sandbox_id, "generation": route.generation, **arguments}
    return fleet.control.call(
        route.queue, f"sandloom.templates.{what}", route.key.tenant_id, named, timeout_seconds=60
    )  # fmt: skip


def test_built_on_one_worker_used_on_another_after_its_restart_and_from_a_snapshot(
    fleet: WorkerFleet,
) -> None:
    fleet.start_worker("w1")
    builder = fleet.ready("builder")
    assert fleet.run(builder, BUILD).exit_code == 0
    built = call(fleet, builder, "build", name="tools", source_path="/envs/tools")
    assert built["shared"] is True
    second = fleet.start_worker("w2")
    user = fleet.ready("user")
    assert (builder.worker_id, user.worker_id) == ("w1", "w2")
    attached = call(fleet, user, "attach", templates=[f"tools@{built['digest']}"])
    assert attached["templates"][0]["digest"] == built["digest"]
    assert fleet.run(user, USE).stdout == b"42\n"
    assert fleet.run(user, "rm -rf /envs/tools; echo x > /envs/tools/new").exit_code != 0

    second.stop()
    second = fleet.start_worker("w2")
    again = fleet.ready("user")
    assert (again.generation, again.workspace) == (user.generation + 1, "kept")
    assert fleet.run(again, USE).stdout == b"42\n"

    fleet.sandbox_gateway.suspend(again.key, again.generation)
    second.stop()
    fleet.start_worker("w3")
    woken, _ = fleet.sandbox_gateway.resume(again.key, "test")
    assert (woken.worker_id, woken.workspace) == ("w3", "restored")
    assert fleet.run(woken, USE).stdout == b"42\n"
    assert fleet.run(woken, "rm -rf /envs/tools; echo x > /envs/tools/new").exit_code != 0


def test_an_archive_that_was_changed_in_the_store_is_not_mounted(fleet: WorkerFleet, s3: S3Server, bucket: str) -> None:
    fleet.start_worker("w1")
    builder = fleet.ready("builder")
    fleet.run(builder, "mkdir /envs/t; echo good > /envs/t/file")
    call(fleet, builder, "build", name="t", source_path="/envs/t")
    [archive] = s3.objects(bucket, "*.tar")
    archive.write_bytes(archive.read_bytes().replace(b"good", b"evil"))
    fleet.start_worker("w2")
    user = fleet.ready("user")
    with pytest.raises(TemplateInvalid):
        call(fleet, user, "attach", templates=["t"])
    assert fleet.run(user, "ls -A /envs").stdout == b""
