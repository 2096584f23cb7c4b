"""Against the kernel's calls: namespaces, mounts and what the seccomp filter refuses."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import signal
import time

from .linux import call, checked, in_child, libc, syscall
from .program import Facts, Held, first_of, looked_at, program

NEW_USER, NEW_NS, NEW_PID, NEW_NET = 0x10000000, 0x20000, 0x20000000, 0x40000000
_NAMESPACES = {"mnt": NEW_NS, "uts": 0x4000000, "ipc": 0x8000000, "pid": NEW_PID, "net": NEW_NET, "cgroup": 0x2000000}


@program("root")
def mounts_a_file_system(facts: Facts) -> str | None:
    """Mount a tmpfs over /tmp."""
    in_child(lambda: call("mount", b"hostile", b"/tmp", b"tmpfs", 0, None))
    return "a mount of its own"


@program("root")
def binds_the_root_elsewhere(facts: Facts) -> str | None:
    """Bind / into the workspace."""
    os.makedirs("hostile-bind", exist_ok=True)
    in_child(lambda: call("mount", b"/", b"hostile-bind", None, 4096, None))
    return "a bind"


@program("root")
def mounts_by_the_new_calls(facts: Facts) -> str | None:
    """Make a tmpfs by fsopen, fsconfig and fsmount, and clone a tree by open_tree."""

    def make() -> None:
        context = syscall("fsopen", b"tmpfs", 0)
        syscall("fsconfig", context, 6, None, None, 0)
        os.close(syscall("fsmount", context, 0, 0))

    return first_of(("fsmount", "open_tree"), lambda way: make() if way == "fsmount" else _clone_tree())


def _clone_tree() -> None:
    os.close(syscall("open_tree", -100, b"/", 1))


@program("root")
def pivots_the_root(facts: Facts) -> str | None:
    """Exchange the root, to get the old one back as a directory."""
    return looked_at(lambda: syscall("pivot_root", b".", b"."))


@program("user")
def makes_a_user_namespace_by_unshare(facts: Facts) -> str | None:
    """Become root of a new user namespace, with every capability in it."""
    in_child(lambda: call("unshare", NEW_USER))
    return "a user namespace"


@program("user")
def makes_a_user_namespace_by_clone(facts: Facts) -> str | None:
    """The same by the call clone."""
    child = syscall("clone", NEW_USER | signal.SIGCHLD, 0, 0, 0, 0)
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    return "a user namespace"


@program("user")
def makes_a_user_namespace_by_clone3(facts: Facts) -> str | None:
    """The same by clone3, whose flags no filter can see."""
    arguments = (ctypes.c_uint64 * 8)(NEW_USER, 0, 0, 0, signal.SIGCHLD)
    child = syscall("clone3", arguments, ctypes.sizeof(arguments))
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    return "a user namespace"


@program("root")
def makes_other_namespaces(facts: Facts) -> str | None:
    """Make a namespace of each other kind."""
    return first_of(_NAMESPACES, lambda name: in_child(lambda: call("unshare", _NAMESPACES[name])))


@program("root")
def joins_a_namespace_by_file(facts: Facts) -> str | None:
    """Join the namespaces of the worker and of its monitor through /proc."""

    def join(path: str) -> None:
        fd = os.open(path, os.O_RDONLY)
        in_child(lambda: call("setns", fd, 0))

    return first_of([f"/proc/{pid}/ns/{name}" for pid in (facts["host_pid"], 1) for name in _NAMESPACES], join)


@program("root")
def joins_a_namespace_by_pidfd(facts: Facts) -> str | None:
    """Join the mount namespace of the worker through a pidfd."""
    fd = os.pidfd_open(facts["host_pid"])
    in_child(lambda: call("setns", fd, NEW_NS))
    return "the worker's mounts"


@program("root")
def loads_a_bpf_program(facts: Facts) -> str | None:
    """Load a BPF program and make a BPF map."""
    filter_type, licence = 1, ctypes.create_string_buffer(b"GPL")
    code = (ctypes.c_uint64 * 2)(0x00000000000000B7, 0x0000000000000095)
    load = (ctypes.c_uint64 * 16)(filter_type | 2 << 32, ctypes.addressof(code), ctypes.addressof(licence))
    new_map = (ctypes.c_uint32 * 18)(2, 4, 8, 1)
    return first_of(
        ("a program", "a map"),
        lambda what: os.close(syscall("bpf", 5, load, 128) if what == "a program" else syscall("bpf", 0, new_map, 72)),
    )


@program("root")
def watches_by_perf_events(facts: Facts) -> str | None:
    """Open a performance counter on itself."""
    attributes = (ctypes.c_uint64 * 16)(1 | 128 << 32, 0)
    os.close(syscall("perf_event_open", attributes, 0, -1, -1, 0))
    return "a counter"


@program("user")
def uses_io_uring(facts: Facts) -> str | None:
    """Set up an io_uring, whose operations pass no filter."""
    os.close(syscall("io_uring_setup", 1, ctypes.create_string_buffer(120)))
    return "a ring"


@program("root")
def handles_page_faults(facts: Facts) -> str | None:
    """Make a userfaultfd, with which kernel races are won."""
    os.close(syscall("userfaultfd", 0))
    return "a descriptor"


@program("user")
def adds_a_key(facts: Facts) -> str | None:
    """Put a key into the keyring of its user, which outlives the command."""
    syscall("add_key", b"user", b"hostile-left", b"v", 1, -4)
    return "a key that stays"


@program("user")
def reads_a_session_keyring(facts: Facts) -> str | None:
    """Find out its session keyring, and read the key that the worker left in its own."""
    syscall("keyctl", 0, -3, 0)
    return "a keyring to search"


@program("user")
def asks_for_a_key(facts: Facts) -> str | None:
    """Have the kernel look for a key, which may start a program of the host."""
    return looked_at(lambda: syscall("request_key", b"user", b"hostile-asked", None, -3))


@program("root")
def loads_another_kernel(facts: Facts) -> str | None:
    """Load a kernel to change to."""
    return looked_at(lambda: syscall("kexec_load", 0, 99, None, 0))


@program("root")
def loads_a_module(facts: Facts) -> str | None:
    """Load and unload kernel modules."""
    ways = ("init_module", "delete_module")
    attempts = {
        "init_module": lambda: syscall("init_module", b"x", 1, b""),
        "delete_module": lambda: syscall("delete_module", b"hostile-none", 0),
    }
    return first_of(ways, lambda way: looked_at(attempts[way]))


@program("root")
def reboots(facts: Facts) -> str | None:
    """Ask for a reboot (with a wrong second number, lest it happens)."""
    return looked_at(lambda: syscall("reboot", 0xFEE1DEAD, 0, 0x1234567, None))


@program("root")
def swaps(facts: Facts) -> str | None:
    """Swap into a file of its own."""
    with open("hostile-swap", "wb") as stream:
        stream.truncate(4096)
    return looked_at(lambda: call("swapon", b"hostile-swap", 0))


@program("root")
def turns_accounting_off(facts: Facts) -> str | None:
    """Turn the host's process accounting off."""
    return looked_at(lambda: call("acct", None))


@program("root")
def changes_quotas(facts: Facts) -> str | None:
    """Turn quotas of a file system off."""
    quota_off_of_users = 0x800003 << 8
    return looked_at(lambda: syscall("quotactl", quota_off_of_users, b"/dev/hostile-none", 0, None))


@program("root")
def reads_the_kernels_log(facts: Facts) -> str | None:
    """Read the kernel's log, which names addresses, devices and processes of others."""
    buffer = ctypes.create_string_buffer(4096)
    return f"{syscall('syslog', 3, buffer, 4096)} bytes of the log"


@program("root")
def sets_the_clock(facts: Facts) -> str | None:
    """Set the machine's clock (to what it shows)."""
    time.clock_settime(time.CLOCK_REALTIME, time.clock_gettime(time.CLOCK_REALTIME))
    return "the clock"


@program("root")
def touches_io_ports(facts: Facts) -> str | None:
    """Get at the ports of the hardware."""
    if os.uname().machine != "x86_64":
        raise Held("no ports on this machine")
    in_child(lambda: call("ioperm", 0x80, 1, 1))
    return "a port"


@program("user")
def maps_the_null_page(facts: Facts) -> str | None:
    """Take a personality that makes every readable page executable and the null page mapped."""
    in_child(lambda: call("personality", 0x400000 | 0x100000))
    return "a harmful personality"


@program("user")
def calls_through_the_32_bit_entry(facts: Facts) -> str | None:
    """Call the kernel by int 0x80, whose numbers are others than those a filter knows."""
    if os.uname().machine != "x86_64":
        raise Held("no such entry on this machine")
    getpid = b"\xb8\x14\x00\x00\x00\xcd\x80\xc3"
    page = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(getpid)
    entry = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))
    answer = entry()
    if answer < 0:
        raise OSError(-answer, os.strerror(-answer))
    return "the 32-bit entry" if answer == os.getpid() else None


@program("no control: most kernels are built without it")
def calls_by_x32_numbers(facts: Facts) -> str | None:
    """Call the kernel by an x32 number."""
    checked(libc.syscall(ctypes.c_long(0x40000000 | 39)))
    return "an x32 call"


@program("root")
def types_into_a_terminal(facts: Facts) -> str | None:
    """Push input into a terminal (TIOCSTI), as into that of whoever started the worker."""
    import fcntl
    import pty

    master, slave = pty.openpty()
    os.setsid() if os.getpid() != os.getsid(0) else None
    terminals = [slave]
    with contextlib.suppress(OSError):
        terminals.append(os.open("/dev/tty", os.O_RDWR))
    first_of(terminals, lambda fd: fcntl.ioctl(fd, 0x5412, b"x"))
    os.close(master)
    return "typed"
