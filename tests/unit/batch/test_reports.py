"""Results as JUnit XML, and progress."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections import Counter
from typing import Any

from sandloom.batch.jobs import Job
from sandloom.batch.junit import junit
from sandloom.batch.plan import Plan
from sandloom.batch.progress import Meter, clock
from sandloom.batch.retries import Outcome, Retries

BASE: dict[str, Any] = {
    "detail": None,
    "error": None,
    "exit_code": None,
    "stdout": "",
    "stderr": "",
    "duration_ms": None,
}
RESULTS: list[dict[str, Any]] = [
    {**BASE, "id": "good", "status": "SUCCEEDED", "reason": "exit", "exit_code": 0, "duration_ms": 1500},
    {**BASE, "id": "bad", "status": "FAILED", "reason": "exit", "exit_code": 3, "stderr": "\x1b[31m<&]]>\ud800\x00\n"},
    {**BASE, "id": "late", "status": "TIMED_OUT", "reason": "timeout"},
    {**BASE, "id": "lost", "status": "WORKER_LOST", "reason": "worker_lost", "detail": "its worker died"},
    {**BASE, "id": "no", "status": "ERROR", "reason": "refused", "error": "NO_SANDBOX_WORKER_AVAILABLE"},
    {**BASE, "id": "after", "status": "SKIPPED", "reason": "dependency", "detail": "bad did not succeed"},
]


def test_junit_is_xml_whatever_a_command_wrote() -> None:
    counts = Counter(str(result["status"]) for result in RESULTS)
    suites = ET.fromstring("".join(junit('a "suite"', RESULTS, counts, 2.5)))
    (suite,) = suites
    assert suite.attrib == {
        "name": 'a "suite"', "tests": "6", "failures": "2", "errors": "2", "skipped": "1", "time": "2.500"
    }  # fmt: skip
    cases = {case.attrib["name"]: case for case in suite}
    said = {
        name: [(child.tag, child.get("message")) for child in case if child.get("message")]
        for name, case in cases.items()
    }
    assert said == {
        "good": [],
        "bad": [("failure", "exit code 3")],
        "late": [("failure", "timeout")],
        "lost": [("error", "its worker died")],
        "no": [("error", "NO_SANDBOX_WORKER_AVAILABLE: refused")],
        "after": [("skipped", "bad did not succeed")],
    }
    assert cases["good"].attrib["time"] == "1.500"
    assert cases["bad"].findtext("system-err") == "\ufffd[31m<&]]>\ufffd\ufffd\n"


def test_progress_counts_and_looks_ahead() -> None:
    jobs = [Job(name, 1, {}) for name in "abcd"] + [Job("e", 1, {}, depends_on=("b",))]
    plan, meter = Plan(jobs, Retries()), Meter(100.0)
    assert str(meter.progress(plan, 100.0)) == "0/5, 0 done, 0 failed, 0 running, 0.0 jobs/s, ETA -"
    assert [attempt.job.id for _ in "abc" if (attempt := plan.begin())] == ["a", "b", "c"]
    plan.end("a", Outcome("SUCCEEDED"))
    meter.ended(101.0)
    for _ in plan.end("b", Outcome("FAILED", "exit")):
        meter.ended(102.0)
    progress = meter.progress(plan, 104.0)
    assert str(progress) == "3/5, 1 done, 1 failed, 1 skipped, 1 running, 0.8 jobs/s, ETA 0:03"
    assert (progress.waiting, progress.through) == (1, 3)
    assert meter.progress(plan, 200.0).rate == 0.0
    assert (clock(None), clock(59.6), clock(3725)) == ("-", "1:00", "1:02:05")
