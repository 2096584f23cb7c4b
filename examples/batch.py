"""A batch over REST: four pieces of work side by side, and one that waits for them and shares their sandbox's files.

    SANDBOX_BASE_URL=http://127.0.0.1:8080 SANDBOX_INTERNAL_TOKEN=… .venv/bin/python examples/batch.py [DIRECTORY]

Its files go to DIRECTORY, else to ``var/example-batch`` of the checkout. Ended at any moment, it goes on where it was
when it is started again with the same directory; once everything has run, that shows the results again.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from sandloom import Client
from sandloom.batch.batch import Batch, Options
from sandloom.batch.rest import RestWay

DIRECTORY = Path(__file__).parents[1] / "var" / "example-batch"
COUNT = "import sys; print(sum(n for n in range(int(sys.argv[1])) if n % 3 == 0))"


def write_jobs(path: Path) -> None:
    parts = [
        {"id": f"part-{number}", "argv": ["python3", "-c", COUNT, str(number * 1000)], "labels": {"kind": "part"}}
        for number in range(1, 5)
    ]
    # Both use the sandbox "shared", one after the other.
    collect = {"id": "collect", "script": "date > when; echo collected", "sandbox": "shared"}
    report = {
        "id": "report",
        "script": "test -s when && echo fine > report.txt",
        "sandbox": "shared",
        "depends_on": ["collect", *(part["id"] for part in parts)],
        "outputs": ["report.txt"],
    }
    path.write_text("".join(json.dumps(job) + "\n" for job in [*parts, collect, report]), "utf-8")


def main() -> int:
    directory = Path(sys.argv[1]) if len(sys.argv) > 1 else DIRECTORY
    directory.mkdir(parents=True, exist_ok=True)
    jobs = directory / "jobs.jsonl"
    write_jobs(jobs)
    options = Options(
        results=directory / "results.jsonl",
        outputs=directory / "outputs",
        junit=directory / "junit.xml",
        concurrency=3,
        resume=True,
    )
    way = RestWay(Client.from_env(), scope="example")
    try:
        summary = Batch(jobs).run(way, options, on_failure=lambda result: print("failed:", result["id"]))
    finally:
        way.close()
    results = {each["id"]: each for each in map(json.loads, options.results.read_text("utf-8").splitlines())}
    for name in sorted(results):
        print(f"{name}: {results[name]['status']} {results[name]['stdout']!r}")
    print(f"report.txt: {(options.outputs / 'report' / 'report.txt').read_text('utf-8')!r}")
    print(f"{summary.total} jobs, {summary.statuses.get('SUCCEEDED', 0)} succeeded")
    return 0 if summary.ok else 1


if __name__ == "__main__":
    sys.exit(main())
