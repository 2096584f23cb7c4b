"""A small parent that starts the floor again and again: ``python -I -S floor_process.py ARGV…``.

Reads lines ``COUNT AT_ONCE`` and answers each with one line of JSON: seconds of each run, of all together, and the CPU
seconds of everything, this process included. A run that fails ends it.
"""

import ctypes
import json
import os
import resource
import sys
import time

ENVIRONMENT = {"PATH": "/usr/bin:/bin"}
PR_SET_CHILD_SUBREAPER = 36


def cpu_seconds() -> float:
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def burst(argv: list[str], count: int, at_once: int) -> dict[str, object]:
    cpu, began = cpu_seconds(), time.perf_counter()
    running: dict[int, float] = {}
    seconds: list[float] = []
    started = 0
    while len(seconds) < count:
        while started < count and len(running) < at_once:
            running[os.posix_spawn(argv[0], argv, ENVIRONMENT)] = time.perf_counter()
            started += 1
        # What bwrap leaves behind comes here too, this process being a subreaper.
        pid, status = os.waitpid(-1, 0)
        if pid in running:
            if status != 0:
                raise SystemExit(f"the floor failed with wait status {status}; a failing run is fast and says nothing")
            seconds.append(time.perf_counter() - running.pop(pid))
    wall = time.perf_counter() - began
    reap()
    return {"seconds": seconds, "wall_seconds": wall, "cpu_seconds": cpu_seconds() - cpu}


def reap() -> None:
    while True:
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def main(argv: list[str]) -> None:
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    for line in sys.stdin:
        count, at_once = map(int, line.split())
        print(json.dumps(burst(argv, count, at_once)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
