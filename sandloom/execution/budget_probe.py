"""Whether this worker's cgroups hold a budget, by a command that goes beyond one."""

from __future__ import annotations

from dataclasses import replace

from sandloom.execution.cgroups import Groups
from sandloom.execution.process import Spawner
from sandloom.execution.runner import Runner
from sandloom.execution.spec import Budgets, BudgetsUnavailable, Reason, Spec

_MEMORY_BYTES = 32 << 20
_PIDS = 24
_CPU_PERCENT = 100
# tail keeps all of what may be its last line.
_SCRIPT = "head -c 64000000 /dev/zero | tail -n 1 > /dev/null"


def problem_with(template: Spec, spawner: Spawner, groups: Groups) -> str | None:
    """``None`` when every controller that is there held its bound, else what was seen."""
    budgets = Budgets(
        memory_bytes=_MEMORY_BYTES if "memory" in groups.controllers else None,
        cpu_percent=_CPU_PERCENT if "cpu" in groups.controllers else None,
        pids=_PIDS if "pids" in groups.controllers else None,
    )
    spec = replace(template, argv=("/bin/sh", "-c", _SCRIPT), group="probe", budgets=budgets)
    try:
        verdict = Runner(spawner, groups).start(spec, lambda *_: None).wait()
    except BudgetsUnavailable as error:
        return str(error)
    finally:
        groups.forget("probe")
    usage = verdict.usage
    if verdict.reason not in (Reason.EXIT, Reason.OOM):
        return f"a command in a cgroup ended with {verdict.reason.value}: {verdict.detail}"
    if budgets.memory_bytes is not None and not usage.oom_killed:
        return f"cgroup memory bound of {budgets.memory_bytes} bytes did not hold: a command used more"
    return None
