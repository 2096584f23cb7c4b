"""Budgets and limits from the settings and the request down to the kernel, and back into the receipt."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sandloom.errors import DiskFull, LimitsExceeded
from sandloom.execs.states import ExecStatus
from sandloom.execution.cgroups import Groups
from sandloom.execution.spec import BudgetsUnavailable
from tests.acceptance.worker_fleet import CALL_SECONDS, WorkerFleet

pytestmark = [pytest.mark.bwrap, pytest.mark.slow]

MIB = 1 << 20
BOMB = "head -c 300m /dev/zero | tail -n 1 > /dev/null; test $? = 0"


@pytest.fixture
def budgeted(postgres_url: str, redis_url: str, data_dir: Path) -> Iterator[WorkerFleet]:
    try:
        groups = Groups.open("acceptance")
    except BudgetsUnavailable as error:
        pytest.skip(f"missing: cgroups that hold budgets: {error}")
    groups.close()
    if groups.missing:
        pytest.skip(f"missing: {groups.missing}")
    fleet = WorkerFleet(
        postgres_url,
        redis_url,
        data_dir,
        SANDBOX_BUDGET_MEMORY_BYTES=str(64 * MIB),
        SANDBOX_BUDGET_PIDS="60",
        SANDBOX_BUDGET_CPU_PERCENT="150",
        SANDBOX_RESOURCE_CONTROL="required",
    )
    yield fleet
    fleet.close()


def test_budgets_and_limits_reach_the_kernel_and_the_receipt(budgeted: WorkerFleet) -> None:
    worker = budgeted.start_worker()
    route = budgeted.ready()
    record = budgeted.run(route, f"{BOMB} || exit 5")
    assert (record.status, record.reason, record.exit_code) == (ExecStatus.FAILED, "oom", 5)
    assert record.detail == f"memory budget of {64 * MIB} bytes reached"
    assert record.usage["oom_killed"] is True

    record = budgeted.run(route, f"{BOMB} || exit 5", limits={"memory_bytes": 24 * MIB})
    assert (record.reason, record.detail) == ("oom", f"memory limit of {24 * MIB} bytes reached")

    record = budgeted.run(route, "for i in $(seq 100); do sleep 60 & done", limits={"pids": 20})
    assert (record.reason, record.detail) == ("pids", "process limit of 20 reached")
    assert budgeted.run(route, "echo fine").stdout == b"fine\n"

    with pytest.raises(LimitsExceeded, match=r"limits\.pids"):
        budgeted.run(route, "true", limits={"pids": 61})

    row = budgeted.services.fleet.get("w1")
    assert row is not None
    assert row.node["capabilities"]["resource_control"]["controllers"] == ["cpu", "memory", "pids"]
    worker.stop()


def test_a_budget_that_the_machine_cannot_hold_refuses_the_start(budgeted: WorkerFleet) -> None:
    worker = budgeted.start_worker(wait=False, SANDBOX_BUDGET_MEMORY_BYTES="1048576", SANDBOX_RESOURCE_CONTROL="off")
    assert worker.wait() == 2
    assert "SANDBOX_BUDGET_MEMORY_BYTES cannot be had with SANDBOX_RESOURCE_CONTROL=off" in worker.output()


def test_limits_are_refused_where_resource_control_is_off(postgres_url: str, redis_url: str, data_dir: Path) -> None:
    fleet = WorkerFleet(postgres_url, redis_url, data_dir, SANDBOX_RESOURCE_CONTROL="off")
    fleet.start_worker()
    route = fleet.ready()
    with pytest.raises(LimitsExceeded, match="cannot enforce"):
        fleet.run(route, "true", limits={"pids": 10})
    assert fleet.run(route, "echo fine").stdout == b"fine\n"
    fleet.close()


def test_a_disk_budget_ends_commands_and_refuses_writes(postgres_url: str, redis_url: str, data_dir: Path) -> None:
    fleet = WorkerFleet(
        postgres_url, redis_url, data_dir, SANDBOX_BUDGET_DISK_BYTES=str(4 * MIB), SANDBOX_BUDGET_INODES="200"
    )
    try:
        fleet.start_worker()
        route = fleet.ready()
        fleet.file(route, "small", bytes(MIB))
        with pytest.raises(DiskFull, match=f"disk budget of {4 * MIB} bytes reached"):
            fleet.file(route, "large", bytes(4 * MIB))
        record = fleet.run(route, "head -c 9M /dev/zero > big; sleep 300", timeout_seconds=60)
        assert (record.status, record.reason) == (ExecStatus.FAILED, "disk")
        assert record.detail is not None
        assert record.detail.startswith(f"disk budget of {4 * MIB} bytes reached: ")
        record = fleet.run(route, "true")
        assert (record.status, record.reason, record.error) == (ExecStatus.FAILED, "disk", DiskFull.code)
        assert record.detail is not None
        assert "delete files" in record.detail
        arguments = {"sandbox_id": route.key.sandbox_id, "generation": route.generation, "path": "/workspace/big"}
        arguments |= {"recursive": False}
        delete = "sandloom.files.delete"
        fleet.control.call(route.queue, delete, route.key.tenant_id, arguments, timeout_seconds=CALL_SECONDS)
        assert fleet.run(route, "echo fine").stdout == b"fine\n"
        row = fleet.services.fleet.get("w1")
        assert row is not None
        assert row.node["capabilities"]["disk_budget"]["mode"] == "measured"
    finally:
        fleet.close()


@pytest.mark.root
def test_required_resource_control_refuses_a_disk_budget_that_is_only_measured(
    postgres_url: str, redis_url: str, data_dir: Path
) -> None:
    fleet = WorkerFleet(
        postgres_url, redis_url, data_dir, SANDBOX_BUDGET_INODES="200", SANDBOX_RESOURCE_CONTROL="required"
    )
    worker = fleet.start_worker(wait=False)
    assert worker.wait() == 2
    assert "SANDBOX_RESOURCE_CONTROL=required" in worker.output()
    assert "project quota" in worker.output()
    fleet.close()
