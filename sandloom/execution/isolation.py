"""Levels, additions and how one is chosen. Pure: what works is asked of the caller, who ran it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from sandloom.execution.spec import IsolationUnavailable, Level

PID_NAMESPACE = "pid_namespace"
CGROUP_NAMESPACE = "cgroup_namespace"
UID_SEPARATION = "uid_separation"
SECCOMP = "seccomp"
CGROUP_LIMITS = "cgroup_limits"
FEATURES = (PID_NAMESPACE, CGROUP_NAMESPACE, UID_SEPARATION, SECCOMP, CGROUP_LIMITS)
# What the worker has or has not, whatever the namespaces are: why it is required to be there.
_OF_THE_WORKER = {
    UID_SEPARATION: "only a worker that is root can give it",
    CGROUP_LIMITS: "this machine's cgroups do not hold budgets for this worker",
}

# Options without which no level can be built; looked up in ``bwrap --help``, never derived from a version number.
REQUIRED_OPTIONS = frozenset(
    {
        "unshare-user", "unshare-ipc", "unshare-uts", "hostname", "disable-userns", "new-session", "die-with-parent",
        "ro-bind", "bind", "symlink", "dir", "dev", "tmpfs", "perms", "size", "remount-ro", "chdir", "json-status-fd",
        "block-fd",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Shape:
    """The namespaces of a level, or of a level with additions; ``seccomp``: with the filter."""

    level: Level
    pid_namespace: bool
    cgroup_namespace: bool
    seccomp: bool = False

    def adding(self, features: Collection[str]) -> Shape:
        return Shape(
            self.level,
            self.pid_namespace or PID_NAMESPACE in features,
            self.cgroup_namespace or CGROUP_NAMESPACE in features,
            self.seccomp or SECCOMP in features,
        )


LEVELS = {
    Level.BASIC: Shape(Level.BASIC, pid_namespace=False, cgroup_namespace=False),
    Level.STANDARD: Shape(Level.STANDARD, pid_namespace=True, cgroup_namespace=False),
    Level.STRICT: Shape(Level.STRICT, pid_namespace=True, cgroup_namespace=True),
}
STRONGEST_FIRST = tuple(reversed(LEVELS))


@dataclass(frozen=True, slots=True)
class Choice:
    """The selected shape, and the optional features that could not be had."""

    shape: Shape
    skipped: tuple[str, ...] = ()


def choose(
    level: Level | None,
    required: Collection[str],
    optional: Collection[str],
    *,
    uid_separation: bool,
    works: Callable[[Shape], bool],
    cgroup_limits: bool = False,
) -> Choice:
    """The strongest shape that ``works``; ``level`` ``None`` means automatic. Raises ``IsolationUnavailable``.

    An explicit level is never weakened, and a required feature never left out. ``uid_separation`` and
    ``cgroup_limits``: whether the worker has them, which no shape changes.
    """
    _known((*required, *optional))
    had = {UID_SEPARATION: uid_separation, CGROUP_LIMITS: cgroup_limits}
    for feature, reason in _OF_THE_WORKER.items():
        if feature in required and not had[feature]:
            raise IsolationUnavailable(f"{feature} is required, and {reason}")
    for candidate in STRONGEST_FIRST if level is None else (level,):
        shape = LEVELS[candidate].adding(required)
        if works(shape):
            return _with_optional(shape, optional, had, works)
    wanted = "no isolation level" if level is None else f"isolation level {level.value!r}"
    additions = f" with {', '.join(sorted(required))}" if required else ""
    raise IsolationUnavailable(f"{wanted}{additions} works on this machine")


def _known(features: Collection[str]) -> None:
    unknown = sorted(set(features) - set(FEATURES))
    if unknown:
        raise IsolationUnavailable(f"unknown isolation feature: {', '.join(unknown)} (known: {', '.join(FEATURES)})")


def _with_optional(
    shape: Shape, optional: Collection[str], of_the_worker: Mapping[str, bool], works: Callable[[Shape], bool]
) -> Choice:
    skipped = []
    for feature in sorted(optional):
        larger = shape.adding([feature])
        if feature in of_the_worker:
            had = of_the_worker[feature]
        else:
            had = larger == shape or works(larger)
        if not had:
            skipped.append(feature)
        else:
            shape = larger
    return Choice(shape, tuple(skipped))


# What helps against a failure: (words in bwrap's message, sysctl that explains it and its bad value, advice).
_FIXES: tuple[tuple[tuple[str, ...], tuple[str, str] | None, str], ...] = (
    (
        ("new namespace", "uid map", "Operation not permitted", "Permission denied"),
        ("kernel/unprivileged_userns_clone", "0"),
        "allow user namespaces: sysctl -w kernel.unprivileged_userns_clone=1",
    ),
    (
        ("new namespace", "uid map", "Operation not permitted", "Permission denied"),
        ("kernel/apparmor_restrict_unprivileged_userns", "1"),
        "give bwrap an AppArmor profile with 'userns,', or sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
    ),
    (("new namespace", "max_"), ("user/max_user_namespaces", "0"), "sysctl -w user.max_user_namespaces=15000"),
    (
        ("mount proc", "max_user_namespaces"),
        None,
        "/proc is masked or read-only, as in a container: run it with security option systempaths=unconfined",
    ),
    (
        ("new namespace",),
        None,
        "the kernel or the outer container forbids namespaces: run it with security option seccomp=unconfined",
    ),
    (("seccomp needs",), None, "install libseccomp 2 (Debian, Ubuntu: libseccomp2)"),
    (
        ("cgroup",),
        None,
        "give the worker its own cgroup: Delegate=yes in its unit, or a container with a writable /sys/fs/cgroup",
    ),
    (("hostname",), None, "the outer container's seccomp profile forbids sethostname: allow it, or seccomp=unconfined"),
    (
        ("find source path", "Permission denied"),
        None,
        "every directory above the workspace root and the state directory must let other users pass: chmod o+x",
    ),
    (("setresuid", "setresgid", "setgroups"), None, "the worker is root without CAP_SETUID and CAP_SETGID: grant both"),
    (("PermissionError",), None, "the bwrap binary and the directories above it must be executable for other users"),
    (("Unknown option",), None, "this bwrap is too old or was built without a needed option: install 0.8 or later"),
    (("loopback",), None, "network 'isolated' needs CAP_NET_ADMIN in its own namespace; the outer container denies it"),
)


def fix_for(message: str, sysctls: Mapping[str, str]) -> str:
    """Advice for a failed run; ``sysctls`` maps paths below ``/proc/sys`` to values. Empty when nothing is known."""
    for words, sysctl, advice in _FIXES:
        if sysctl is not None and sysctls.get(sysctl[0]) != sysctl[1]:
            continue
        if any(word in message for word in words):
            return advice
    return ""


SYSCTLS = tuple(sorted({sysctl[0] for _, sysctl, _ in _FIXES if sysctl is not None}))
