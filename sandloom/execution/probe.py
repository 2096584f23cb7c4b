"""What isolation this machine gives: every shape is run for real, by the same code that runs commands."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from sandloom.execution import bubblewrap, budget_probe, etc, isolation, machine, seccomp
from sandloom.execution.cgroups import Groups
from sandloom.execution.process import Spawner
from sandloom.execution.runner import Runner
from sandloom.execution.spec import (
    Directories,
    IsolationUnavailable,
    Level,
    Network,
    Plan,
    Reason,
    Spec,
    SystemMount,
)

DEFAULT_MOUNTS = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc")
_TIMEOUT_SECONDS = 20
# Not only that it starts: each clause that every level promises, and those that come with a private /proc.
_SCRIPT = """\
set -e
for place in / /dev /usr /etc; do
  if ( : > "$place/.sandloom-probe" ) 2>/dev/null; then echo "$place is writable"; exit 1; fi
done
for place in /workspace /home /envs /cache /tmp /dev/shm; do : > "$place/.sandloom-probe"; done
if [ -e /proc/self ]; then
  if [ "$1" ] && ! grep -q '^Seccomp:[^0-9]*2' /proc/self/status; then echo "no seccomp filter is on"; exit 1; fi
  if [ "$(cat /proc/self/status | sed -n 's/^CapEff:[^0-9a-f]*0*//p')" ]; then echo "capabilities are left"; exit 1; fi
  test -d /proc/1 && read -r name < /proc/1/comm && test "$name" = bwrap
fi
"""


@dataclass(frozen=True, slots=True)
class ProbeRequest:
    """What the deployment asks for. ``level`` ``None``: automatic. ``uid``/``gid``: a free id to run as when root.

    ``state_dir`` is a directory of the worker that sandbox users may pass; ``/etc`` and identities are made below it.
    ``controllers``: those of cgroups that the feature ``cgroup_limits`` must have here.
    """

    state_dir: Path
    uid: int
    gid: int
    level: Level | None = None
    required: frozenset[str] = frozenset()
    optional: frozenset[str] = frozenset()
    network: Network = Network.HOST
    readonly_mounts: tuple[str, ...] = DEFAULT_MOUNTS
    bwrap: str | None = None
    controllers: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ProbeFailure:
    """One shape that did not work: the verbatim message and what would help (may be empty)."""

    level: str
    features: tuple[str, ...]
    message: str
    fix: str

    def to_dict(self) -> dict[str, object]:
        return {"level": self.level, "features": list(self.features), "message": self.message, "fix": self.fix}


@dataclass(frozen=True, slots=True)
class ProbeReport:
    """``plan`` is ``None`` when the request cannot be met; ``blocked`` says why then.

    ``controllers``: of cgroups, those that were seen to hold a budget.
    """

    plan: Plan | None
    supported_levels: tuple[Level, ...] = ()
    probe_failures: tuple[ProbeFailure, ...] = ()
    skipped_features: tuple[str, ...] = ()
    bwrap_version: str = ""
    blocked: str = ""
    warnings: tuple[str, ...] = ()
    controllers: frozenset[str] = frozenset()

    @property
    def fixes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(failure.fix for failure in self.probe_failures if failure.fix))


def probe(request: ProbeRequest, spawner: Spawner, groups: Groups | None = None, no_groups: str = "") -> ProbeReport:
    """Run every level, then choose. Never raises for what the machine lacks: the report says it.

    ``groups``: the worker's cgroups; ``None``: it has none, because of ``no_groups`` (empty: it wants none).
    """
    uid_separation = os.geteuid() == 0
    try:
        binary = bubblewrap.inspect(bubblewrap.locate(request.bwrap))
        base = _base_plan(request, binary, uid_separation)
    except (IsolationUnavailable, OSError) as error:
        return ProbeReport(None, blocked=str(error))
    with scratch_sandbox(request, base) as template:
        runs = _Runs(template, Runner(spawner), request.state_dir / "seccomp.bpf")
        runs.seccomp_problem = _write_filter(runs.seccomp_file, binary)
        supported = tuple(level for level, shape in isolation.LEVELS.items() if runs.works(shape))
        held = _Held()
        if supported:
            strongest = replace(template, plan=runs.plan(isolation.LEVELS[supported[-1]]))
            held = _examine_groups(strongest, spawner, groups, no_groups)
        if held.problem:
            fix = isolation.fix_for(held.problem, {})
            runs.failures.append(ProbeFailure("budgets", (isolation.CGROUP_LIMITS,), held.problem, fix))
        try:
            choice = isolation.choose(
                request.level,
                request.required,
                request.optional | ({isolation.SECCOMP} - request.required),
                uid_separation=uid_separation,
                works=runs.works,
                cgroup_limits=bool(held.controllers) and request.controllers <= held.controllers,
            )
        except IsolationUnavailable as error:
            because = f": {held.problem}" if isolation.CGROUP_LIMITS in request.required and held.problem else ""
            return _report(None, supported, runs, binary, blocked=f"{error}{because}")
    plan = runs.plan(choice.shape)
    return _report(plan, supported, runs, binary, skipped=choice.skipped, controllers=held.controllers)


def _report(
    plan: Plan | None,
    supported: tuple[Level, ...],
    runs: _Runs,
    binary: bubblewrap.Bubblewrap,
    *,
    blocked: str = "",
    skipped: tuple[str, ...] = (),
    controllers: frozenset[str] = frozenset(),
) -> ProbeReport:
    warnings = ("the whole /etc of the host is visible in every sandbox",) if runs.base.whole_etc else ()
    return ProbeReport(plan, supported, tuple(runs.failures), skipped, binary.version, blocked, warnings, controllers)


@dataclass(frozen=True, slots=True)
class _Held:
    """Which cgroup controllers hold a bound, and why not all do (empty: they do, or nobody wants them)."""

    controllers: frozenset[str] = frozenset()
    problem: str = ""


def _examine_groups(template: Spec, spawner: Spawner, groups: Groups | None, no_groups: str) -> _Held:
    if groups is None:
        return _Held(problem=no_groups)
    problem = budget_probe.problem_with(template, spawner, groups)
    if problem is not None:
        return _Held(problem=problem)
    return _Held(groups.controllers, groups.lacks(groups.missing))


@dataclass
class _Runs:
    """Runs shapes, each once."""

    template: Spec
    runner: Runner
    seccomp_file: Path
    failures: list[ProbeFailure] = field(default_factory=list)
    seccomp_problem: str | None = None
    _results: dict[isolation.Shape, bool] = field(default_factory=dict)

    @property
    def base(self) -> Plan:
        return self.template.plan

    def plan(self, shape: isolation.Shape) -> Plan:
        return replace(
            self.base,
            level=shape.level,
            pid_namespace=shape.pid_namespace,
            cgroup_namespace=shape.cgroup_namespace,
            seccomp_file=str(self.seccomp_file) if shape.seccomp else None,
        )

    def works(self, shape: isolation.Shape) -> bool:
        if shape not in self._results:
            message = self._run(shape)
            self._results[shape] = message is None
            if message is not None:
                self._failed(shape, message)
        return self._results[shape]

    def _failed(self, shape: isolation.Shape, message: str) -> None:
        features = [isolation.PID_NAMESPACE] if shape.pid_namespace else []
        features += [isolation.CGROUP_NAMESPACE] if shape.cgroup_namespace else []
        features += [isolation.SECCOMP] if shape.seccomp else []
        fix = isolation.fix_for(message, _sysctls())
        self.failures.append(ProbeFailure(shape.level.value, tuple(features), message, fix))

    def _run(self, shape: isolation.Shape) -> str | None:
        """``None`` when everything held, else what was said."""
        plan = self.plan(shape)
        if not plan.uid_separation and not shape.pid_namespace:
            return "without root there is no private uid, and basic has no other border between processes"
        if shape.seccomp and self.seccomp_problem is not None:
            return self.seccomp_problem
        output: list[bytes] = []
        seccomp_word = "seccomp" if shape.seccomp else ""
        spec = replace(self.template, plan=plan, argv=("/bin/sh", "-c", _SCRIPT, "sh", seccomp_word))
        verdict = self.runner.start(spec, lambda _, chunk: output.append(chunk)).wait()
        if verdict.reason is Reason.EXIT and verdict.exit_code == 0:
            return None
        said = b"".join(output).decode("utf-8", "replace").strip()
        return "\n".join(part for part in (verdict.detail, said) if part) or f"ended with {verdict.reason.value}"


def _write_filter(path: Path, binary: bubblewrap.Bubblewrap) -> str | None:
    """``None`` when the filter is there, else why not."""
    if "seccomp" not in binary.features:
        return f"{binary.path} was built without --seccomp"
    try:
        seccomp.write_filter(path)
    except (IsolationUnavailable, OSError) as error:
        return str(error)
    return None


def _base_plan(request: ProbeRequest, binary: bubblewrap.Bubblewrap, uid_separation: bool) -> Plan:
    paths = [path for path in request.readonly_mounts if not path.startswith("/etc")]
    extra = [path[len("/etc/") :] for path in request.readonly_mounts if path.startswith("/etc/") and path != "/etc/"]
    etc_dir = request.state_dir / "etc"
    etc.build_etc(etc_dir, extra=extra)
    notes_dir = request.state_dir / "notes"
    notes_dir.mkdir(exist_ok=True)
    notes_dir.chmod(0o711)
    return Plan(
        bwrap=binary.path,
        features=binary.features,
        level=Level.BASIC,
        pid_namespace=False,
        cgroup_namespace=False,
        network=request.network,
        uid_separation=uid_separation,
        readonly_mounts=system_mounts(paths),
        etc_dir=str(etc_dir),
        identity_dir=str(request.state_dir / "identity"),
        resolv_conf=etc.resolv_conf(request.network),
        whole_etc="/etc/" in request.readonly_mounts,
        machine_dir=str(machine.directory(request.state_dir)),
        notes_dir=str(notes_dir),
    )


def system_mounts(paths: Collection[str]) -> tuple[SystemMount, ...]:
    """How each path is shown: a link on the host (merged /usr) stays a link, what is not there is left out."""
    mounts = []
    for path in sorted(set(paths)):
        if os.path.islink(path):
            mounts.append(SystemMount(os.readlink(path), path, link=True))
        elif os.path.exists(path):
            mounts.append(SystemMount(path, path))
    return tuple(mounts)


@contextlib.contextmanager
def scratch_sandbox(request: ProbeRequest, plan: Plan) -> Iterator[Spec]:
    """A throw-away sandbox, as a spec to change: its argv is ``true``."""
    base = Path(tempfile.mkdtemp(prefix="probe-", dir=request.state_dir))
    uid = request.uid if plan.uid_separation else os.getuid()
    gid = request.gid if plan.uid_separation else os.getgid()
    try:
        base.chmod(0o711)
        paths = [base / name for name in ("workspace", "home", "envs", "cache")]
        for path in paths:
            path.mkdir(mode=0o700)
            if plan.uid_separation:
                os.chown(path, uid, gid)
        directories = Directories(*map(str, paths))
        yield Spec("probe", plan, uid, gid, directories, ("true",), timeout_seconds=_TIMEOUT_SECONDS)
    finally:
        shutil.rmtree(base, ignore_errors=True)


def _sysctls(names: Sequence[str] = isolation.SYSCTLS) -> dict[str, str]:
    found = {}
    for name in names:
        with contextlib.suppress(OSError):
            found[name] = Path("/proc/sys", name).read_text(encoding="ascii").strip()
    return found
