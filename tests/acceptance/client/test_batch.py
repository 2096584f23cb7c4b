"""Batches against a real service, whatever ends the process of the batch."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sandloom import Client
from sandloom.cli.local_service import LocalService
from sandloom.contracts.rest import RouteAnswer
from tests.acceptance.worker_fleet import until
from tests.services.process import ROOT, Process

pytestmark = pytest.mark.bwrap
Run = Callable[..., subprocess.CompletedProcess[Any]]


def write_jobs(path: Path, *jobs: dict[str, Any]) -> None:
    path.write_text("".join(json.dumps(job) + "\n" for job in jobs))


def results(path: Path) -> dict[str, dict[str, Any]]:
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(rows) == len({row["id"] for row in rows})
    return {row["id"]: row for row in rows}


def sandboxes(client: Client, journal: Path) -> list[RouteAnswer]:
    batch = json.loads(journal.read_text().splitlines()[0])["batch"]
    return client.sandboxes(search=batch, limit=200)


def test_jobs_run_with_their_files_and_what_they_wait_for(sandloom: Run, tmp_path: Path, client: Client) -> None:
    (tmp_path / "x.txt").write_text("input\n")
    (tmp_path / "tool").write_text("#!/bin/sh\necho tool\n")
    (tmp_path / "tool").chmod(0o755)
    write_jobs(
        tmp_path / "jobs.jsonl",
        {"id": "use", "script": "cat made in/x; cp made out", "sandbox": "k", "depends_on": ["make"],
         "inputs": {"in/x": "x.txt"}, "outputs": ["out", "/workspace/in/x"]},
        {"id": "make", "script": "echo made > made", "sandbox": "k"},
        {"id": "tool", "argv": ["./tool"], "inputs": {"tool": "tool"}, "stdin": "", "env": {"A": "b"}},
        {"id": "bad", "script": "echo oops >&2; exit 3", "retries": 1, "retry_on": ["exit"]},
        {"id": "after", "argv": ["true"], "depends_on": ["tool", "bad"]},
        {"id": "no-output", "argv": ["true"], "outputs": ["never"]},
        {"id": "slow", "argv": ["sleep", "60"], "timeout_seconds": 1},
        {"id": "refused", "argv": ["true"], "templates": ["never-made"]},
    )  # fmt: skip
    done = sandloom("batch", "run", "jobs.jsonl", "--junit", "junit.xml", "--concurrency", "4")
    assert (done.returncode, "8/8, 3 done, 4 failed, 1 skipped" in done.stderr) == (1, True), done.stderr
    found = results(tmp_path / "jobs.results.jsonl")
    assert {name: (row["status"], row["reason"], row["attempts"]) for name, row in found.items()} == {
        "use": ("SUCCEEDED", "exit", 1),
        "make": ("SUCCEEDED", "exit", 1),
        "tool": ("SUCCEEDED", "exit", 1),
        "bad": ("FAILED", "exit", 2),
        "after": ("SKIPPED", "dependency", 0),
        "no-output": ("FAILED", "output_missing", 1),
        "slow": ("TIMED_OUT", "timeout", 1),
        "refused": ("ERROR", "refused", 1),
    }
    assert (found["use"]["stdout"], found["tool"]["stdout"]) == ("made\ninput\n", "tool\n")
    assert (found["bad"]["exit_code"], found["bad"]["stderr"]) == (3, "oops\n")
    assert found["refused"]["error"] == "SANDBOX_TEMPLATE_NOT_FOUND"
    assert (tmp_path / "jobs.outputs" / "use" / "out").read_text() == "made\n"
    assert (tmp_path / "jobs.outputs" / "use" / "in" / "x").read_text() == "input\n"
    assert 'tests="8" failures="3" errors="1" skipped="1"' in (tmp_path / "junit.xml").read_text()
    left = sandboxes(client, tmp_path / "jobs.results.jsonl.journal")
    assert {route.status for route in left} == {"RELEASED"}
    assert len(left) == 7  # two attempts of one job, and one sandbox for two

    again = sandloom("batch", "run", "jobs.jsonl")
    assert (again.returncode, "--resume" in again.stderr) == (2, True)
    resumed = sandloom("batch", "run", "jobs.jsonl", "--resume", "--json")
    assert (resumed.returncode, json.loads(resumed.stdout)["statuses"]["SUCCEEDED"]) == (1, 3)
    assert results(tmp_path / "jobs.results.jsonl") == found
    write_jobs(tmp_path / "jobs.jsonl", {"id": "other", "argv": ["true"]})
    changed = sandloom("batch", "run", "jobs.jsonl", "--resume")
    assert (changed.returncode, "has changed" in changed.stderr) == (2, True)
    assert "ended early" not in changed.stderr


def test_killed_and_interrupted_it_goes_on_and_runs_nothing_twice(
    tmp_path: Path, client: Client, environment: dict[str, str], service: LocalService
) -> None:
    shared = [{"id": f"s{n}", "script": f"echo s{n} >> log; sleep 0.2", "sandbox": "log"} for n in range(10)]
    # However late a run is ended, these have left some jobs to the next one.
    for n in (3, 6, 9):
        shared[n]["script"] = f"until [ -e go-{n} ]; do sleep 0.05; done; {shared[n]['script']}"
    own = [{"id": f"o{n}", "script": f"echo o{n}; sleep 0.5"} for n in range(8)]
    log = {"id": "log", "script": "cat log", "sandbox": "log", "depends_on": [job["id"] for job in shared]}
    write_jobs(tmp_path / "jobs.jsonl", *shared, *own, log)
    journal = tmp_path / "jobs.results.jsonl.journal"
    command = [sys.executable, "-m", "sandloom", "batch", "run", "jobs.jsonl", "--concurrency", "3", "--resume"]

    def ended() -> int:
        return journal.read_text().count('{"ended"') if journal.exists() else 0

    def log_files() -> list[Path]:
        return list(service.data_dir.glob("workspaces/sandboxes/*/*/workspace/log"))

    for number, ending in enumerate((signal.SIGKILL, signal.SIGINT, signal.SIGKILL, None)):
        before = ended()
        with Process(command, log_path=tmp_path / f"log-{number}", env=environment, cwd=tmp_path) as process:
            if number:
                log_files()[0].with_name(f"go-{3 * number}").touch()
            if ending is None:
                assert process.wait() == 0, process.output()
                break
            until(lambda before=before: ended() >= before + 3 and bool(log_files()))  # type: ignore[misc]
            process.send_signal(ending)
            assert process.wait() == (130 if ending is signal.SIGINT else -signal.SIGKILL)
            if ending is signal.SIGINT:
                process.wait_for_output("--resume")
    found = results(tmp_path / "jobs.results.jsonl")
    assert {row["status"] for row in found.values()} == {"SUCCEEDED"}
    assert {row["attempts"] for row in found.values()} == {1}
    assert found["log"]["stdout"].split() == [f"s{n}" for n in range(10)]
    assert [found[f"o{n}"]["stdout"] for n in range(8)] == [f"o{n}\n" for n in range(8)]
    left = sandboxes(client, journal)
    assert {route.status for route in left} == {"RELEASED"}
    runs = [row.exec_id for route in left for row in client.attach(route.sandbox_id).processes(limit=200)]
    assert len(runs) == len(set(runs)) == 19


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b'{"id": "b", "argv": ["true"], "tmeout_seconds": 3}', "line 2: tmeout_seconds: "),
        (
            b'{"id": "b", "argv": ["true"], "inputs": {"x": "not-there"}}',
            "line 2: inputs./workspace/x: not-there is not",
        ),
        (b'{"id": "b", "argv": ["true"], "\xc2\x9b2J\\u001b[2J": 1}', r"line 2: \x9b2J\x1b[2J: is not a field"),
        (b'{"id": "b"', "line 2: is not JSON"),
    ],
)
def test_a_bad_line_is_told_before_anything_runs(sandloom: Run, tmp_path: Path, line: bytes, said: str) -> None:
    (tmp_path / "jobs.jsonl").write_bytes(b'{"id": "a", "script": "touch ran", "outputs": ["ran"]}\n' + line + b"\n")
    done = sandloom("batch", "run", "jobs.jsonl")
    assert done.returncode == 2
    first, last = done.stderr.splitlines()
    assert said in first
    assert last == "sandloom: SANDBOX_BATCH_INVALID: jobs.jsonl has one problem; nothing was run"
    assert os.listdir(tmp_path) == ["jobs.jsonl"]


def test_all_that_is_wrong_is_told_at_once(sandloom: Run, tmp_path: Path) -> None:
    write_jobs(
        tmp_path / "jobs.jsonl",
        {"id": "a", "argv": "x", "inputs": {"in": "not-there"}},
        {"id": "b", "argv": ["true"], "depends_on": ["a", "unknown"]},
        {"id": "b", "argv": ["true"]},
        {"id": "c", "argv": ["true"], "depends_on": ["c"], "inputs": {"in": "x" * 300}},
    )
    done = sandloom("batch", "run", "jobs.jsonl")
    *told, last = done.stderr.splitlines()
    assert [line.split(": ")[1:3] for line in told] == [
        ["line 1", "argv"],
        ["line 1", "inputs./workspace/in"],
        ["line 2", "depends_on"],
        ["line 3", "id"],
        ["line 4", "depends_on"],
        ["line 4", "inputs./workspace/in"],
    ]
    assert (done.returncode, "6 problems; nothing was run" in last) == (2, True)


def test_where_nothing_can_be_run_nothing_is_left_behind(
    tmp_path: Path, sandloom: Run, environment: dict[str, str]
) -> None:
    write_jobs(tmp_path / "jobs.jsonl", {"id": "a", "argv": ["true"]})
    nobody = {name: value for name, value in environment.items() if name != "SANDBOX_INTERNAL_TOKEN"}
    for options, environ, said in (
        ((), environment | {"SANDBOX_INTERNAL_TOKEN": "wrong"}, "UNAUTHORIZED"),
        ((), environment | {"SANDBOX_BASE_URL": "http://127.0.0.1:9"}, "SERVICE_UNAVAILABLE"),
        ((), nobody | {"SANDBOX_DATA_DIR": str(tmp_path)}, "no token"),
        (("--via", "celery"), environment, "SANDBOX_BROKER_URL"),
        (("--out", "not/there"), environment, "choose another --out"),
    ):
        done = sandloom("batch", "run", "jobs.jsonl", *options, env=environ)
        assert (done.returncode, said in done.stderr, "ended early" in done.stderr) == (2, True, False), done.stderr
        assert os.listdir(tmp_path) == ["jobs.jsonl"]
    done = sandloom("batch", "run", "jobs.jsonl")
    assert (done.returncode, results(tmp_path / "jobs.results.jsonl")["a"]["attempts"]) == (0, 1)


def test_the_example_runs_and_is_resumed_by_running_it_again(environment: dict[str, str], tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "examples" / "batch.py"), "made"]
    for _ in range(2):
        done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert re.findall(r"^(.*): SUCCEEDED", done.stdout, re.MULTILINE) == [
            "collect", "part-1", "part-2", "part-3", "part-4", "report",
        ]  # fmt: skip
        assert "report.txt: 'fine\\n'" in done.stdout
        assert done.stdout.endswith("6 jobs, 6 succeeded\n")
        assert os.listdir(tmp_path) == ["made"]
