"""Runs inside the sandbox, on its Python: a project's own tests, a line per module as it ends, and a report.

Uploaded by the demo as text, so it uses nothing but the standard library.
"""

from __future__ import annotations

import json
import sys
import time
import unittest


def modules(suite: unittest.TestSuite) -> dict[str, unittest.TestSuite]:
    """The tests of a suite, by the module they are in."""
    found: dict[str, unittest.TestSuite] = {}
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            for name, inner in modules(test).items():
                found.setdefault(name, unittest.TestSuite()).addTests(inner)
        else:
            found.setdefault(type(test).__module__, unittest.TestSuite()).addTest(test)
    return found


def main() -> int:
    start_directory, report_path = sys.argv[1:3]
    tests = failed = skipped = 0
    began = time.perf_counter()
    found = modules(unittest.defaultTestLoader.discover(start_directory, top_level_dir="."))
    for name, suite in found.items():
        result = unittest.TestResult()
        result.buffer = True
        started = time.perf_counter()
        suite.run(result)
        broken = result.failures + result.errors
        seconds = time.perf_counter() - started
        print(f"  {name:<52} {result.testsRun:>4} tests {'FAILED' if broken else 'ok':>6} {seconds:6.2f} s", flush=True)
        for test, trace in broken:
            print(f"{test}\n{trace}", file=sys.stderr, flush=True)
        tests += result.testsRun
        failed += len(broken)
        skipped += len(result.skipped)
    report = {
        "tests": tests,
        "failed": failed,
        "skipped": skipped,
        "modules": len(found),
        "seconds": round(time.perf_counter() - began, 2),
        "python": sys.version.split()[0],
    }
    with open(report_path, "w") as file:
        json.dump(report, file)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
