"""Batches over a fleet: the same over REST and Celery, and each job once whatever is killed.

``--batch-jobs 2000`` is the long form of the second test.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from sandloom import Client
from sandloom.ids import ExecKey, SandboxKey
from tests.acceptance.worker_fleet import SHORT_LEASE, TOKEN, WorkerFleet, until
from tests.services.account import free_port
from tests.services.process import ROOT, Process, base_environment

pytestmark = [pytest.mark.root, pytest.mark.bwrap, pytest.mark.slow, pytest.mark.timeout(900)]
#: What differs from run to run.
VARYING = {"duration_ms", "queued_ms", "usage", "started_at", "finished_at", "sandbox_id", "exec_id"}
JOBS: list[dict[str, Any]] = [
    {"id": "in", "script": "cat x; cp x y", "inputs": {"x": "x.txt"}, "outputs": ["y"], "labels": {"k": "v"}},
    {"id": "first", "script": "echo 1 > f", "sandbox": "k"},
    {"id": "second", "script": "cat f; exit 4", "sandbox": "k", "depends_on": ["first"]},
    {"id": "third", "argv": ["true"], "depends_on": ["second"]},
    {"id": "no-program", "argv": ["/no/such/program"], "retries": 3},
    {"id": "slow", "argv": ["sleep", "60"], "timeout_seconds": 1},
    {"id": "bytes", "argv": ["printf", r"\377ok"]},
]


@pytest.fixture
def fleet(postgres_url: str, redis_url: str, data_dir: Path) -> Iterator[WorkerFleet]:
    fleet = WorkerFleet(postgres_url, redis_url, data_dir)
    yield fleet
    fleet.close()


def write_jobs(path: Path, jobs: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(job) + "\n" for job in jobs))


def results(path: Path) -> dict[str, dict[str, Any]]:
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(rows) == len({row["id"] for row in rows})
    return {row["id"]: row for row in rows}


def batch(*options: str) -> list[str]:
    return [sys.executable, "-m", "sandloom", "batch", "run", "jobs.jsonl", *options]


def start_api(fleet: WorkerFleet, port: str) -> Process:
    api = fleet.start_api(port)

    def answers() -> bool:
        try:
            return httpx.get(f"http://127.0.0.1:{port}/health", trust_env=False).status_code == 200
        except httpx.HTTPError:
            return False

    until(answers)
    return api


def test_both_ways_have_the_same_results_and_logs_outlive_a_replica(fleet: WorkerFleet, tmp_path: Path) -> None:
    fleet.start_worker()
    port = str(free_port())
    api = start_api(fleet, port)
    url = f"http://127.0.0.1:{port}"
    environ = base_environment(**fleet.environ, SANDBOX_BASE_URL=url, PYTHONPATH=str(ROOT))
    (tmp_path / "x.txt").write_text("input\n")
    write_jobs(tmp_path / "jobs.jsonl", JOBS)
    found = {}
    for way in ("rest", "celery"):
        command = batch("--via", way, "--out", way, "--outputs", f"{way}-files")
        done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
        assert done.returncode == 1, done.stderr
        rows = results(tmp_path / way)
        found[way] = {name: {k: v for k, v in row.items() if k not in VARYING} for name, row in rows.items()}
        # Which of the programs that start a command reports this one is not the batch's affair.
        assert "/no/such/program" in found[way]["no-program"].pop("stderr")
        assert (tmp_path / f"{way}-files" / "in" / "y").read_text() == "input\n"
    for name in found["rest"]:
        assert found["rest"][name] == found["celery"][name]
    assert {name: row["status"] for name, row in found["rest"].items()} == {
        "in": "SUCCEEDED", "first": "SUCCEEDED", "second": "FAILED", "third": "SKIPPED", "no-program": "FAILED",
        "slow": "TIMED_OUT", "bytes": "SUCCEEDED",
    }  # fmt: skip
    assert (found["rest"]["no-program"]["exit_code"], found["rest"]["no-program"]["attempts"]) == (127, 1)

    with Client(url, TOKEN) as client:
        box = client.sandbox("followed", keep=True)
        box.start("echo begun; while [ ! -e go ]; do sleep 0.1; done; echo over", exec_id="long", scope="s-1")
        command = [sys.executable, "-m", "sandloom", "logs", "-f", "followed", "long"]
        with Process(command, log_path=tmp_path / "logs", env=environ, cwd=tmp_path) as logs:
            logs.wait_for_output("begun")
            os.killpg(api.pid, signal.SIGKILL)
            start_api(fleet, port)
            box.files.write("/workspace/go", "")
            assert logs.wait() == 0
            assert logs.output() == "begun\nover\n"
        box.release()


def test_each_job_runs_once_or_is_reported_lost(
    fleet: WorkerFleet, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    count = pytestconfig.getoption("--batch-jobs")
    workers = [fleet.start_worker(name, wait=False) for name in ("w1", "w2", "w3")]
    for worker in workers:
        worker.wait_for_output("worker started", timeout_seconds=240)
    fleet.start_beat(**SHORT_LEASE)
    write_jobs(tmp_path / "jobs.jsonl", [{"id": f"j{n}", "script": f"echo {n}; sleep 0.2"} for n in range(count)])
    environ = base_environment(**fleet.environ, PYTHONPATH=str(ROOT))
    journal = tmp_path / "jobs.results.jsonl.journal"
    command = batch("--via", "celery", "--concurrency", "6", "--resume")

    def ended() -> int:
        return journal.read_text().count('{"ended"') if journal.exists() else 0

    with Process(command, log_path=tmp_path / "first", env=environ, cwd=tmp_path) as process:
        until(lambda: ended() >= count // 5, 120 + count)
        process.kill()
    with Process(command, log_path=tmp_path / "second", env=environ, cwd=tmp_path) as process:
        until(lambda: ended() >= count // 2, 120 + count)
        workers[0].kill()
        fleet.lapse()
        code = process.wait(600)
    found = results(tmp_path / "jobs.results.jsonl")
    lost = [name for name, row in found.items() if row["status"] == "WORKER_LOST"]
    assert len(found) == count
    assert code == (1 if lost else 0)
    for number in range(count):
        row = found[f"j{number}"]
        records, total = fleet.execs.list(SandboxKey("default", row["sandbox_id"]), 10, 0)
        assert (total, records[0].key) == (1, ExecKey("default", row["sandbox_id"], row["exec_id"]))
        expected = ("WORKER_LOST", "worker_lost") if row["id"] in lost else ("SUCCEEDED", "exit")
        assert (row["status"], row["reason"], row["attempts"]) == (*expected, 1), row
        assert row["id"] in lost or row["stdout"] == f"{number}\n"
