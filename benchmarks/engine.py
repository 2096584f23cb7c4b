"""The engine alone: ``Runner`` in this process, no API, no records."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import replace

from benchmarks.burst import Burst, run_burst
from benchmarks.cpu import cpu_seconds_of
from sandloom.execution.probe import ProbeRequest, probe, scratch_sandbox
from sandloom.execution.process import Spawner
from sandloom.execution.runner import Runner
from sandloom.execution.spec import Level, Network, Spec
from tests.services.account import passable_directory, remove_tree

_UID = 65533


class Engine:
    def __init__(self, name: str, spawner: Spawner, template: Spec) -> None:
        self.name = name
        self._runner = Runner(spawner)
        # Not by looking for descendants: that itself is work of this process.
        assert spawner.pid is not None
        self._pids = (os.getpid(), spawner.pid)
        self._template = template

    def burst(self, count: int, at_once: int) -> Burst:
        return run_burst(self._command, count, at_once, lambda: cpu_seconds_of(self._pids))

    def _command(self, _: int) -> None:
        verdict = self._runner.start(self._template, lambda *_: None).wait()
        if verdict.exit_code != 0:
            raise SystemExit(f"a command failed: {verdict}")


@contextlib.contextmanager
def engine(*, native: bool = True) -> Iterator[Engine]:
    """``native``: with the compiled helper, where it is built."""
    state = passable_directory("sandloom-bench")
    uid = _UID if os.geteuid() == 0 else os.getuid()
    request = ProbeRequest(state, uid, uid, level=Level.STRICT, network=Network.ISOLATED)
    spawner = Spawner(native=native)
    try:
        report = probe(request, spawner)
        if report.plan is None:
            raise SystemExit(report.blocked)
        with scratch_sandbox(request, report.plan) as template:
            template = replace(template, limits=replace(template.limits, max_processes=4096))
            yield Engine("engine" if spawner.native else "engine, Python twin", spawner, template)
    finally:
        spawner.close()
        remove_tree(state)
