"""Whether the toolchains work in a sandbox: each is run for real, all at the same time."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from sandloom.execution import toolchain_files
from sandloom.execution.probe import ProbeRequest, scratch_sandbox
from sandloom.execution.process import Spawner
from sandloom.execution.runner import Runner
from sandloom.execution.spec import ExecutionError, Plan, Reason, Spec, Verdict
from sandloom.execution.toolchains import TOOLCHAINS, ToolchainRequest

#: A start waits this long for the slowest of them.
TIMEOUT_SECONDS = 10.0
_MAX_SAID = 300
_NOT_THERE = 127


class Found(StrEnum):
    AVAILABLE = "available"
    MISSING = "missing"
    FAILED = "failed"
    TIMED_OUT = "timed_out"


@dataclass(frozen=True, slots=True)
class Check:
    """``said``: the version of one that is available, else what it said or what happened to it."""

    found: Found
    said: str


@dataclass(frozen=True, slots=True)
class ToolchainReport:
    configured: tuple[str, ...]
    checks: Mapping[str, Check]
    hints: Sequence[str]
    level_has_proc: bool

    @property
    def details(self) -> dict[str, str]:
        """What each said; for operators, since it may name what lies on the host."""
        return {name: check.said for name, check in self.checks.items()}

    def to_dict(self) -> dict[str, Any]:
        """As ``/healthz`` shows it to everybody."""
        failed = [name for name, check in self.checks.items() if check.found is Found.FAILED]
        return {
            "configured": list(self.configured),
            "available": [name for name, check in self.checks.items() if check.found is Found.AVAILABLE],
            "checks": {name: check.found.value for name, check in self.checks.items()},
            "isolation_hints": list(self.hints),
            "unavailable_at_this_level": [] if self.level_has_proc else failed,
        }


class Toolchains:
    """The toolchains of a worker: ``plan`` and ``env`` are for its commands; the checks run meanwhile."""

    def __init__(self, request: ToolchainRequest, probed: ProbeRequest, plan: Plan, spawner: Spawner) -> None:
        """Starts the checks. Raises ``OSError``."""
        self._request = request
        self._prepared = toolchain_files.prepare(request, plan, probed.state_dir / "toolchains")
        self.plan = replace(plan, toolchain_dir=self._prepared.directory)
        self.env = self._prepared.env
        self._checks: dict[str, Check] = {}
        self._threads = [
            threading.Thread(
                target=self._check, args=(name, probed, Runner(spawner)), name=f"check-{name}", daemon=True
            )
            for name in request.toolchains
        ]
        for thread in self._threads:
            thread.start()

    def report(self) -> ToolchainReport:
        """Waits until every check has ended, which is bounded."""
        for thread in self._threads:
            thread.join()
        checks = {name: self._checks[name] for name in self._request.toolchains}
        has_proc = self.plan.pid_namespace
        return ToolchainReport(self._request.toolchains, checks, self._hints(checks, has_proc), has_proc)

    def _hints(self, checks: Mapping[str, Check], has_proc: bool) -> list[str]:
        hints = dict(self._prepared.hints)
        for name, check in checks.items():
            if check.found is Found.FAILED and not has_proc:
                hints.setdefault(name, "fails at this level, which has no /proc: try SANDBOX_ISOLATION_LEVEL=standard")
            elif check.found is Found.MISSING:
                program = TOOLCHAINS[name].program
                hints.setdefault(name, f"no {program} where commands see it: install it below /usr")
        return [f"{name}: {hint}" for name, hint in hints.items()]

    def _check(self, name: str, probed: ProbeRequest, runner: Runner) -> None:
        toolchain = TOOLCHAINS[name]
        script = f"command -v {toolchain.program} >/dev/null || exit {_NOT_THERE}\n{toolchain.check}"
        output: list[bytes] = []
        try:
            with scratch_sandbox(probed, self.plan) as template:
                verdict = runner.start(self._spec(template, script), lambda _, chunk: output.append(chunk)).wait()
            self._checks[name] = _judged(verdict, b"".join(output).decode("utf-8", "replace").strip())
        except (ExecutionError, OSError) as error:
            self._checks[name] = Check(Found.FAILED, str(error)[:_MAX_SAID])

    def _spec(self, template: Spec, script: str) -> Spec:
        return replace(
            template,
            argv=("/bin/sh", "-c", script),
            limits=self._request.limits,
            runtime_env=self.env,
            timeout_seconds=TIMEOUT_SECONDS,
            terminate_grace_seconds=0.5,
            max_output_bytes=64 << 10,
        )


def _judged(verdict: Verdict, said: str) -> Check:
    if verdict.reason is Reason.TIMEOUT:
        return Check(Found.TIMED_OUT, f"no end within {TIMEOUT_SECONDS:g} s")
    if verdict.reason is Reason.EXIT and verdict.exit_code == _NOT_THERE and not said:
        return Check(Found.MISSING, "")
    if verdict.reason is Reason.EXIT and verdict.exit_code == 0:
        return Check(Found.AVAILABLE, said.splitlines()[-1][:_MAX_SAID] if said else "")
    return Check(Found.FAILED, (said or verdict.detail or f"ended with {verdict.reason.value}")[:_MAX_SAID])
