"""The bwrap command line of a ``Spec``: a pure function with one fixed order.

The order of the mounts is the security model: read-only system first, then synthetic file systems, then what the
sandbox owns, and last the root file system turned read-only. Later mounts cover earlier ones, so nothing that a
sandbox can write to may come before something it must not change.
"""

from __future__ import annotations

from dataclasses import dataclass

from sandloom.execution import environment, notes
from sandloom.execution.machine import WHOLE, Machine
from sandloom.execution.spec import Network, Plan, Spec, SpecInvalid

# Numbers that the spawner gives these descriptors; none of them reaches the command.
STATUS_FD = 3
SETUP_FD = 4
ENTER_FD = 5
SECCOMP_FD = 6

IDENTITY_TARGET = "/run/identity"
TOOLCHAIN_TARGET = "/run/toolchains"

# Directories that no command can replace by a link.
_FIXED_PLACES = frozenset({"/", "/tmp", "/workspace", "/home", "/envs", "/cache"})
# bwrap enters a directory while it still holds one of the host open, and a link to /proc/self/fd/N would lead there
# and out of the sandbox. So wherever a command could have put a link, a shell goes that holds nothing. What it cannot
# do it says on a descriptor that the command does not get.
_ENTER = (
    'cd -- "$1" 2>/dev/null || { echo cwd >&5; exit 1; }; shift; '
    'command -v "$1" >/dev/null || { echo program >&5; exit 127; }; '
    'unset OLDPWD; exec "$@" 5>&-'
)


@dataclass(frozen=True, slots=True)
class CommandLine:
    """What the spawner executes: ``argv[0]`` is the bwrap binary, ``env`` its whole environment.

    ``enters``: a shell inside goes to the working directory, and needs ``ENTER_FD``.
    """

    argv: tuple[str, ...]
    env: dict[str, str]
    enters: bool = False


def build(spec: Spec, identity: str, machine: Machine = WHOLE, fifo: str = "") -> CommandLine:
    """The command line for ``spec``; ``identity`` is the host directory with this uid's passwd, group and hosts.

    ``machine``: what is shown of the machine, which is mounted over what the kernel says of it. ``fifo``: the one for
    this command's notes, if it has one.

    Raises ``SpecInvalid`` for an empty argv, NUL characters, root, a relative ``cwd`` or reserved environment names.
    """
    _check(spec)
    plan = spec.plan
    args = [plan.bwrap]
    args += _namespaces(plan, spec.hostname)
    args += _system(plan, identity)
    args += _synthetic(plan, spec)
    args += [word for source, target in machine.mounts for word in ("--ro-bind", source, target)]
    args += _owned(spec)
    runtime_env = dict(spec.runtime_env)
    if fifo:
        # Read-only: its mode cannot be changed then, while a FIFO takes writes all the same.
        args += ["--ro-bind", fifo, notes.TARGET]
        runtime_env[notes.VARIABLE] = notes.TARGET
    enters = spec.cwd not in _FIXED_PLACES
    args += ["--remount-ro", "/", "--chdir", "/" if enters else spec.cwd]
    args += _channels(plan)
    args += ["--", *(("/bin/sh", "-c", _ENTER, "sh", spec.cwd) if enters else ()), *spec.argv]
    return CommandLine(tuple(args), environment.build(spec.env, runtime_env), enters)


def _check(spec: Spec) -> None:
    if not spec.argv:
        raise SpecInvalid("argv is empty")
    if any("\0" in word for word in (*spec.argv, spec.cwd, spec.hostname)):
        raise SpecInvalid("argv, cwd and hostname cannot hold a NUL character")
    if spec.plan.uid_separation and (spec.uid < 1 or spec.gid < 1):
        raise SpecInvalid("a sandbox never runs as root")
    if not spec.cwd.startswith("/"):
        raise SpecInvalid("cwd must be absolute")


def _namespaces(plan: Plan, hostname: str) -> list[str]:
    # A user namespace of its own in any case: without it --disable-userns is impossible, and a nested user namespace
    # gives every capability inside itself.
    args = ["--unshare-user", "--disable-userns", "--unshare-ipc", "--unshare-uts", "--hostname", hostname]
    if plan.pid_namespace:
        args.append("--unshare-pid")
    if plan.cgroup_namespace:
        args.append("--unshare-cgroup")
    if plan.network is Network.ISOLATED:
        args.append("--unshare-net")
    return [*args, "--new-session", "--die-with-parent"]


def _system(plan: Plan, identity: str) -> list[str]:
    args: list[str] = []
    for mount in plan.readonly_mounts:
        args += ["--symlink" if mount.link else "--ro-bind", mount.source, mount.target]
    args += ["--ro-bind", "/etc" if plan.whole_etc else plan.etc_dir, "/etc"]
    args += ["--perms", "0755", "--dir", "/run", "--ro-bind", identity, IDENTITY_TARGET]
    if plan.toolchain_dir is not None:
        # Cargo takes mirrors from files alone, and looks for those upwards from where it is.
        args += ["--ro-bind", plan.toolchain_dir, TOOLCHAIN_TARGET, "--symlink", "run/toolchains/cargo", "/.cargo"]
    if plan.whole_etc:
        for name in ("passwd", "group", "hosts"):
            args += ["--ro-bind", f"{identity}/{name}", f"/etc/{name}"]
    elif plan.resolv_conf is not None:
        args += ["--ro-bind", plan.resolv_conf, "/etc/resolv.conf"]
    return args


def _synthetic(plan: Plan, spec: Spec) -> list[str]:
    args = ["--dev", "/dev", *_tmpfs("/dev/shm", spec.limits.shm_bytes), "--remount-ro", "/dev"]
    if plan.pid_namespace:
        # Without a PID namespace a fresh procfs would show every process of the machine.
        args += ["--proc", "/proc"]
    args += _tmpfs("/tmp", spec.limits.tmpfs_bytes)
    return [*args, "--perms", "0755", "--dir", "/var", "--symlink", "../tmp", "/var/tmp"]


def _tmpfs(target: str, size_bytes: int) -> list[str]:
    return ["--perms", "1777", "--size", str(size_bytes), "--tmpfs", target]


def _owned(spec: Spec) -> list[str]:
    owned = spec.home_dirs
    pairs = (
        (owned.workspace, "/workspace"),
        (owned.home, "/home"),
        (owned.envs, "/envs"),
        (owned.cache, "/cache"),
    )
    args = [word for source, target in pairs for word in ("--bind", source, target)]
    return args + [word for name, tree in spec.templates for word in ("--ro-bind", tree, f"/envs/{name}")]


def _channels(plan: Plan) -> list[str]:
    args = ["--json-status-fd", str(STATUS_FD)]
    if not plan.pid_namespace:
        # bwrap reads this byte when everything is set up, see failure.py.
        args += ["--block-fd", str(SETUP_FD)]
    if plan.seccomp_file is not None:
        args += ["--seccomp", str(SECCOMP_FD)]
    return args
