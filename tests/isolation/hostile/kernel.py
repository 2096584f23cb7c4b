"""Against what the kernel shows in files: /proc, /sys, and switches of the whole machine."""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import socket

from .linux import MONITOR, call, in_child, libc, syscall
from .program import Facts, Held, first_of, found, program


@program("root")
def writes_kernel_settings(facts: Facts) -> str | None:
    """Write settings below /proc/sys: the core handler, the host's name, panics (each to what it is)."""

    def write(name: str) -> None:
        with open(f"/proc/sys/{name}", "r+") as stream:
            text = stream.read()
            stream.seek(0)
            stream.write(text)

    return first_of(("kernel/core_pattern", "kernel/hostname", "vm/overcommit_memory", "kernel/panic"), write)


@program("root")
def presses_sysrq(facts: Facts) -> str | None:
    """Have the kernel act on a magic key (the one for help)."""
    if not os.path.exists("/proc/sysrq-trigger"):
        raise OSError(errno.ENOSYS, "no such switch")
    with open("/proc/sysrq-trigger", "w") as stream:
        stream.write("h")
    return "pressed"


@program("root")
def reads_kernel_memory_files(facts: Facts) -> str | None:
    """Open what /proc shows of the kernel's memory, pages and keys."""
    names = ("kcore", "kpageflags", "kpagecount", "slabinfo", "timer_list", "vmallocinfo")
    return first_of(names, lambda name: os.close(os.open(f"/proc/{name}", os.O_RDONLY)))


@program("user")
def reads_sys(facts: Facts) -> str | None:
    """Look for devices, drivers and cgroups below /sys."""
    return f"{len(os.listdir('/sys/devices'))} kinds of devices"


@program("root")
def writes_to_cgroups(facts: Facts) -> str | None:
    """Write to cgroups, to get out of a bound or to set a release agent (CVE-2022-0492)."""

    def make(base: str) -> None:
        os.mkdir(f"{base}/hostile")
        os.rmdir(f"{base}/hostile")

    def mount() -> None:
        call("mount", b"hostile", b"/tmp", b"cgroup", 0, b"pids")

    places = ("/sys/fs/cgroup", "/sys/fs/cgroup/pids", "/sys/fs/cgroup/unified")
    try:
        return first_of(places, make)
    except (OSError, Held):
        in_child(mount)
    return "cgroups mounted"


@program("root")
def protects_itself_from_the_oom_killer(facts: Facts) -> str | None:
    """Lower its own score, so that others are killed in its place."""

    def lower() -> None:
        with open("/proc/self/oom_score_adj", "w") as stream:
            stream.write("-900")

    in_child(lower)
    return "a lower score"


@program("root")
def raises_its_limits(facts: Facts) -> str | None:
    """Raise hard limits: of processes, files, CPU time, file size, core files."""
    limits = {"NPROC": 6, "NOFILE": 7, "CPU": 0, "FSIZE": 1, "CORE": 4}

    def change(number: int) -> None:
        _, hard = resource.getrlimit(number)
        bound = 1000 if hard == resource.RLIM_INFINITY else hard
        resource.setrlimit(number, (bound, bound))
        try:
            resource.setrlimit(number, (bound, bound + 1))
        except ValueError as error:
            raise PermissionError(errno.EPERM, str(error)) from error

    return first_of(limits, lambda name: in_child(lambda: change(limits[name])))


@program("root")
def takes_all_cpu_time(facts: Facts) -> str | None:
    """Ask for real-time scheduling and for a better priority than others."""
    policy = os.sched_param(1)
    try:
        in_child(lambda: os.sched_setscheduler(0, os.SCHED_FIFO, policy))
    except OSError:
        in_child(lambda: os.setpriority(os.PRIO_PROCESS, 0, -10))
    return "a better priority"


@program("root")
def becomes_root(facts: Facts) -> str | None:
    """Change to uid 0, to group 0, and to no groups."""
    return first_of((os.setuid, os.setgid), lambda change: in_child(lambda: change(0))) and "root"


@program("root")
def renames_the_host(facts: Facts) -> str | None:
    """Change the host's name and domain."""
    in_child(lambda: socket.sethostname("hostile"))
    return "a name"


@program("no control: nothing may take it back anywhere")
def takes_back_no_new_privileges(facts: Facts) -> str | None:
    """Clear no_new_privs and the seccomp filter."""
    set_no_new_privileges, set_seccomp = 38, 22
    attempts = {"no_new_privs": (set_no_new_privileges, 0), "seccomp": (set_seccomp, 0)}
    return first_of(attempts, lambda name: call("prctl", *attempts[name], 0, 0, 0))


@program("root")
def keeps_capabilities(facts: Facts) -> str | None:
    """Raise a capability into the ambient set, so that what it starts has it."""

    def take() -> None:
        head = (ctypes.c_uint32 * 2)(0x20080522, 0)
        everything = (ctypes.c_uint32 * 6)(*([1 << 21] * 2 + [1 << 21] + [0] * 3))
        if libc.capset(head, everything) != 0:
            raise OSError(1, "refused")

    in_child(take)
    return "the capability to administrate"


@program("root")
def reads_the_environment_of_others(facts: Facts) -> str | None:
    """Look for a secret in the environment and command line of every process that /proc shows."""

    def read(path: str) -> None:
        with open(path, "rb") as stream:
            found(stream.read().decode(errors="replace"))

    pids = {str(facts["host_pid"]), "1", str(MONITOR), *filter(str.isdigit, os.listdir("/proc"))}
    return first_of([f"/proc/{pid}/{name}" for pid in sorted(pids) for name in ("environ", "cmdline")], read)


@program("user")
def lists_processes_of_the_host(facts: Facts) -> str | None:
    """See the worker and the other sandbox in /proc."""
    for pid in (facts["host_pid"], facts["victim_pid"]):
        os.stat(f"/proc/{pid}/stat")
        with open(f"/proc/{pid}/stat") as stream:
            if "python" in stream.read():
                return "a process of others"
    return None


@program(
    "no control: outside, every path is the host's",
    reaches="paths of the host: its own mounts name the directories that they come from",
)
def reads_where_its_files_are_on_the_host(facts: Facts) -> str | None:
    """Read the host's path of its workspace from its mount table."""
    if os.path.exists("/proc/self/mountinfo"):
        with open("/proc/self/mountinfo") as stream:
            text = stream.read()
    else:
        text = _mount_roots()
    return facts["base"] if facts["base"] in text else None


def _mount_roots() -> str:
    """By listmount and statmount (Linux 6.8), which need no /proc."""
    root_id, mount_root = 0xFFFFFFFFFFFFFFFF, 0x8
    ids = (ctypes.c_uint64 * 256)()
    count = syscall("listmount", (ctypes.c_uint64 * 4)(24, root_id, 0), ids, 256, 0)
    texts = []
    for mount_id in ids[:count]:
        buffer = ctypes.create_string_buffer(4096)
        syscall("statmount", (ctypes.c_uint64 * 4)(24, mount_id, mount_root), buffer, 4096, 0)
        texts.append(buffer.raw)
    return b"".join(texts).decode(errors="replace")
