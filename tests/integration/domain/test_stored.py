"""A worker measures what its sandboxes have on the disk, each once in a while."""

from __future__ import annotations

import os
from pathlib import Path

from sandloom.execution.workspace import WorkspaceRoot
from tests.integration.domain.test_usage import report
from tests.integration.domain.world import TENANT, World, key
from workers.stored import StoredBytes

MIB = 1 << 20


def test_what_sandboxes_have_is_measured_once_in_a_while(world: World, data_dir: Path):
    rootless = os.geteuid() != 0
    root = WorkspaceRoot.open(data_dir / "root", rootless=rootless)
    world.register()
    for number in range(2):
        route = world.ready(f"box-{number}")
        created = root.create(route.key, route.sandbox_uid, route.sandbox_uid)
        Path(created.directories.workspace, "file").write_bytes(b"x" * (number + 1) * MIB)
    world.register("w2")
    stored = StoredBytes("w1", root, world.suspensions, world.usage, 3600)
    try:
        stored.look()
        measured = {row.sandbox_id: row.stored_byte_days for row in report(world, group_by=("sandbox",))[0]}
        assert measured.keys() == {"box-0", "box-1"}
        assert MIB <= measured["box-0"] < 2 * MIB <= measured["box-1"] < 3 * MIB
        Path(root.directories(key("box-0")).workspace, "more").write_bytes(b"x" * MIB)
        stored.look()
        assert world.usage.of_today(TENANT)[2] == sum(measured.values())
        stored._measured.clear()
        stored.look()
        assert world.usage.of_today(TENANT)[2] >= sum(measured.values()) + MIB
    finally:
        stored.stop()
