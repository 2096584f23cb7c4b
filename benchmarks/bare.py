"""The floor: setpriv, bwrap with the namespaces of ``strict``, ``true``; started by a small parent."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

from benchmarks.burst import Burst
from tests.services.bubblewrap import find_bwrap

_UID = 65534
BEST_AT_ONCE = 4


def command() -> list[str]:
    bwrap = [find_bwrap(), "--unshare-all", "--unshare-user", "--die-with-parent", "--new-session"]
    bwrap += ["--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "true"]
    if os.geteuid() != 0:
        return bwrap
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        raise SystemExit("the floor needs setpriv (package util-linux)")
    ids = ["--reuid", str(_UID), "--regid", str(_UID), "--clear-groups", "--no-new-privs"]
    return [setpriv, *ids, *bwrap]


class Floor:
    name = "floor"

    def __init__(self) -> None:
        argv = [sys.executable, "-I", "-S", str(Path(__file__).with_name("floor_process.py")), *command()]
        self._process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/")

    def burst(self, count: int, at_once: int) -> Burst:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(count, at_once, file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("the floor failed")
        return Burst(**json.loads(line))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
