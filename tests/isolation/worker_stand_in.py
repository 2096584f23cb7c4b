"""A process that runs one command as a worker does, to be killed by a test.

``SPEC_FILE KEPT_FILE LEASE_SECONDS NATIVE [GROUPS_NAME]``; with the last one it has cgroups for budgets.
"""

from __future__ import annotations

import os
import pickle
import sys
import time
from pathlib import Path

from sandloom.execution.cgroups import Groups
from sandloom.execution.process import Spawner
from sandloom.execution.runner import Runner
from sandloom.execution.spec import Spec


def main(spec_file: str, kept_file: str, lease_seconds: str, native: str, groups_name: str = "") -> None:
    kept = os.open(kept_file, os.O_RDWR | os.O_CREAT, 0o600)
    spec: Spec = pickle.loads(Path(spec_file).read_bytes())  # noqa: S301 - written by the test itself
    spawner = Spawner(keep_fds=[kept], native=native == "True")
    groups = Groups.open(groups_name) if groups_name else None

    def told(_: str, chunk: bytes) -> None:
        # From when the command runs, however long its start takes.
        spawner.lease(time.clock_gettime(time.CLOCK_BOOTTIME) + float(lease_seconds))
        print(chunk.decode(), spawner.pid, flush=True)

    handle = Runner(spawner, groups).start(spec, told)
    print("verdict", handle.wait().reason.value, flush=True)
    spawner.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
