"""What the engine is asked to run and what it answers. Plain frozen data, no behaviour."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from sandloom.execution.directories import Directories

__all__ = [
    "Budgets",
    "BudgetsUnavailable",
    "Directories",
    "ExecutionError",
    "GroupFacts",
    "IsolationUnavailable",
    "LaunchFault",
    "Level",
    "Limits",
    "Network",
    "Plan",
    "Reason",
    "SpawnerUnavailable",
    "Spec",
    "SpecInvalid",
    "SystemMount",
    "Usage",
    "Verdict",
]


class Level(StrEnum):
    """Named isolation levels, weakest first."""

    BASIC = "basic"
    STANDARD = "standard"
    STRICT = "strict"


class Network(StrEnum):
    """Which network a command sees."""

    HOST = "host"
    ISOLATED = "isolated"


class Reason(StrEnum):
    """Why a command ended; the words of the REST contract."""

    EXIT = "exit"
    SIGNAL = "signal"
    TIMEOUT = "timeout"
    QUEUE_TIMEOUT = "queue_timeout"
    OOM = "oom"
    PIDS = "pids"
    CPU_LIMIT = "cpu_limit"
    FILE_SIZE = "file_size"
    DISK = "disk"
    OUTPUT_CAP = "output_cap"
    CANCELLED = "cancelled"
    NOT_STARTED = "not_started"
    WORKER_LOST = "worker_lost"


class LaunchFault(StrEnum):
    """Why the program itself never ran."""

    PROGRAM_NOT_FOUND = "program_not_found"
    PROGRAM_NOT_EXECUTABLE = "program_not_executable"
    ARGUMENTS_TOO_LONG = "arguments_too_long"
    CWD_UNAVAILABLE = "cwd_unavailable"
    PROCESS_LIMIT = "process_limit"
    ISOLATION_FAILED = "isolation_failed"
    SPAWNER_LOST = "spawner_lost"


@dataclass(frozen=True, slots=True)
class Limits:
    """Resource limits of each process of a command (``max_processes``: of all processes of the sandbox's uid)."""

    cpu_seconds: int = 300
    max_processes: int = 512
    max_open_files: int = 1024
    max_file_size_bytes: int = 1 << 30
    tmpfs_bytes: int = 512 << 20
    shm_bytes: int = 64 << 20


@dataclass(frozen=True, slots=True)
class Budgets:
    """Bounds on processes as a whole, held by cgroups, and on what they keep on the disk. ``None``: not bounded.

    A ``cpu_percent`` of 100 is one core.
    """

    memory_bytes: int | None = None
    cpu_percent: int | None = None
    pids: int | None = None
    disk_bytes: int | None = None
    inodes: int | None = None

    @property
    def disk(self) -> bool:
        """Whether the disk is bounded."""
        return self.disk_bytes is not None or self.inodes is not None

    @property
    def controllers(self) -> frozenset[str]:
        """The cgroup controllers that these bounds need."""
        wanted = {"memory": self.memory_bytes, "cpu": self.cpu_percent, "pids": self.pids}
        return frozenset(name for name, bound in wanted.items() if bound is not None)


@dataclass(frozen=True, slots=True)
class SystemMount:
    """One read-only system path: a bind of ``source``, or with ``link`` a symlink whose text is ``source``."""

    source: str
    target: str
    link: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """How every command of a worker is isolated: what the probe selected by real runs.

    ``seccomp_file`` holds the filter's program; ``None``: no filter. ``machine_dir``: see ``machine``.
    ``toolchain_dir``: see ``toolchain_files``; ``None``: the toolchains need no files. ``notes_dir``: where commands
    get their FIFOs for notes; empty: none.
    """

    bwrap: str
    features: frozenset[str]
    level: Level
    pid_namespace: bool
    cgroup_namespace: bool
    network: Network
    uid_separation: bool
    readonly_mounts: tuple[SystemMount, ...]
    etc_dir: str
    identity_dir: str
    resolv_conf: str | None = None
    whole_etc: bool = False
    seccomp_file: str | None = None
    machine_dir: str = ""
    toolchain_dir: str | None = None
    notes_dir: str = ""


@dataclass(frozen=True, slots=True)
class Spec:
    """One command.

    ``env`` holds only the caller's variables, ``runtime_env`` those that the deployment sets (proxies, toolchains); the
    base environment is added by the engine. ``max_output_bytes`` counts per stream. ``budgets`` bound all commands of
    the sandbox together, whose cgroup is named ``group``; ``own_budgets`` bound this command alone. ``templates``:
    names and host directories of what is mounted read-only below ``/envs``.
    """

    name: str
    plan: Plan
    uid: int
    gid: int
    home_dirs: Directories
    argv: tuple[str, ...]
    cwd: str = "/workspace"
    env: Mapping[str, str] = field(default_factory=dict)
    timeout_seconds: float | None = 300
    terminate_grace_seconds: float = 5
    limits: Limits = field(default_factory=Limits)
    stdin: bytes | None = None
    max_output_bytes: int = 8 << 20
    hostname: str = "sandbox"
    runtime_env: Mapping[str, str] = field(default_factory=dict)
    group: str = ""
    budgets: Budgets = field(default_factory=Budgets)
    own_budgets: Budgets = field(default_factory=Budgets)
    templates: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """What a command's cgroup counted. ``None``: the kernel does not count it.

    ``memory_bound`` and ``pids_bound`` say which bound it was that processes were killed at or could not be made at.
    """

    memory_peak_bytes: int | None = None
    pids_peak: int | None = None
    oom_kills: int = 0
    refused_forks: int = 0
    memory_bound: str = ""
    pids_bound: str = ""


@dataclass(frozen=True, slots=True)
class Usage:
    """What a command used. ``None``: not measured.

    ``max_rss_bytes`` is the peak of the command's cgroup where it has one (that counts cached file pages and what lies
    in /tmp and /dev/shm too), else that of its largest process.
    """

    cpu_ms: int = 0
    max_rss_bytes: int = 0
    pids_peak: int | None = None
    io_bytes: int | None = None
    oom_killed: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a command ended.

    ``exit_code`` is ``128 + signal`` when a signal ended it (a program that itself exits with such a code looks the
    same, as in a shell). ``error`` is set only when the program never ran. ``detail`` may name host paths for
    ``isolation_failed``: it is for operators then.
    """

    reason: Reason
    exit_code: int | None = None
    signal: int | None = None
    error: LaunchFault | None = None
    detail: str = ""
    usage: Usage = field(default_factory=Usage)
    duration_ms: int = 0
    truncated: bool = False


class ExecutionError(Exception):
    """Base of what the engine raises (a command's own failure is a ``Verdict``, never an exception)."""


class SpecInvalid(ExecutionError):
    """The spec asks for something the engine must refuse, such as a reserved environment name."""


class SpawnerUnavailable(ExecutionError):
    """The spawner process cannot be started or refuses commands."""


class BudgetsUnavailable(ExecutionError):
    """Budgets were asked for and cannot be held here; the message says why."""


class IsolationUnavailable(ExecutionError):
    """The requested isolation cannot be had on this machine; the message says what failed and what would help."""
