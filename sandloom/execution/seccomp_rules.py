"""What the seccomp filter refuses, as data. A deny-list: whatever is not named here works as without a filter.

Refused is what a program in a sandbox has no use for and what kernel holes were found in. The answer is always an
error that programs are ready for, never a signal: ENOSYS where there is an older way to fall back to, else EPERM.

Left alone on purpose:

- ptrace, process_vm_readv and process_vm_writev, kcmp, pidfd_getfd: debuggers need them, and the kernel bounds them to
  processes of the same uid in the same PID namespace, which are the sandbox's own.
- seccomp and landlock: a program may bind itself further.
- mbind, move_pages and other NUMA calls, fanotify, inotify, memfd_secret, remap_file_pages: ordinary uses exist.
- adjtimex and clock_adjtime, which also only read; setting the clock needs a capability that nothing here has.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass

_WORD = 0xFFFFFFFF

#: Refused whatever the arguments are.
ALWAYS = {
    errno.EPERM: (
        # mounts and roots
        "mount", "umount", "umount2", "pivot_root", "setns", "quotactl", "quotactl_fd", "swapon", "swapoff",
        # files by handle go around every directory permission
        "open_by_handle_at", "name_to_handle_at",
        # the kernel itself
        "bpf", "perf_event_open", "kexec_load", "kexec_file_load", "init_module", "finit_module", "delete_module",
        "reboot", "acct", "syslog", "iopl", "ioperm", "vhangup", "userfaultfd",
        # the clock
        "settimeofday", "clock_settime", "clock_settime64", "stime",
        # keyrings belong to the uid, not to the namespace
        "keyctl", "add_key", "request_key",
    ),
    errno.ENOSYS: (
        # its flags are behind a pointer, which no filter can look at; the C library falls back to clone
        "clone3",
        "io_uring_setup", "io_uring_enter", "io_uring_register",
        "open_tree", "open_tree_attr", "move_mount", "fsopen", "fsconfig", "fsmount", "fspick", "mount_setattr",
        # gone or obsolete
        "nfsservctl", "lookup_dcookie", "uselib", "ustat", "sysfs", "_sysctl", "create_module", "query_module",
        "get_kernel_syms", "vm86", "vm86old", "modify_ldt",
    ),
}  # fmt: skip

#: Numbers that an older libseccomp has no name for. From 424 on they are the same on every architecture.
NUMBERS = {
    "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "open_tree": 428, "move_mount": 429,
    "fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433, "clone3": 435, "mount_setattr": 442,
    "quotactl_fd": 443, "open_tree_attr": 467,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Condition:
    """Holds when ``argument & mask == value``; without a mask, when the whole argument is above ``value``."""

    argument: int
    mask: int | None
    value: int


@dataclass(frozen=True, slots=True)
class Rule:
    """``call`` answers ``error`` when every condition holds."""

    call: str
    error: int
    conditions: tuple[Condition, ...] = ()


_NEW_NAMESPACE = {
    "time": 0x80, "mnt": 0x20000, "cgroup": 0x2000000, "uts": 0x4000000, "ipc": 0x8000000, "user": 0x10000000,
    "pid": 0x20000000, "net": 0x40000000,
}  # fmt: skip
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
_AF_NETLINK, _NETLINK_AUDIT = 16, 9
# All but unix (1), inet (2), inet6 (10) and netlink (16): each of the others is a module that nobody here needs.
_REFUSED_FAMILIES = (*range(3, 10), *range(11, 16))
_PERSONALITY_ASK = _WORD
# PER_LINUX32, UNAME26 and ADDR_NO_RANDOMIZE (debuggers) change only how things look to the process itself.
_PERSONALITY_HARMLESS = 0x0000008 | 0x0020000 | 0x0040000


def rules(machine: str) -> tuple[Rule, ...]:
    """Every rule; ``machine`` as in ``uname -m``."""
    found = [Rule(call, error) for error, calls in ALWAYS.items() for call in calls]
    return (*found, *_namespaces(machine), *_terminals(), *_sockets(), *_personalities())


def _namespaces(machine: str) -> list[Rule]:
    clone_flags = 1 if machine == "s390x" else 0
    found = [
        Rule("unshare", errno.EPERM, (Condition(0, flag, flag),)) for flag in _NEW_NAMESPACE.values()
    ]  # fmt: skip
    # The low byte of clone's flags is the signal to the parent; the time namespace is out of its reach.
    flags = (flag for name, flag in _NEW_NAMESPACE.items() if name != "time")
    return [*found, *(Rule("clone", errno.EPERM, (Condition(clone_flags, flag, flag),)) for flag in flags)]


def _terminals() -> list[Rule]:
    # The kernel takes the low 32 bits of the request only.
    return [Rule("ioctl", errno.EPERM, (Condition(1, _WORD, request),)) for request in (_TIOCSTI, _TIOCLINUX)]


def _sockets() -> list[Rule]:
    audit = (Condition(0, _WORD, _AF_NETLINK), Condition(2, _WORD, _NETLINK_AUDIT))
    # The kernel takes the low 32 bits; more bits only make the argument larger. Every command pays for each rule.
    above = [Rule(call, errno.EAFNOSUPPORT, (Condition(0, None, _AF_NETLINK),)) for call in ("socket", "socketpair")]
    families = [Rule("socket", errno.EAFNOSUPPORT, (Condition(0, _WORD, family),)) for family in _REFUSED_FAMILIES]
    return [Rule("socket", errno.EPROTONOSUPPORT, audit), *above, *families]


def _personalities() -> list[Rule]:
    """Allowed are asking (all bits set) and the harmless bits; that is what is left of the others bit by bit."""
    top = 0x80000000
    bits = [1 << number for number in range(31)]
    conditions = [Condition(0, top | bit, bit) for bit in bits if not bit & _PERSONALITY_HARMLESS]
    conditions += [Condition(0, top | bit, top) for bit in bits]
    return [Rule("personality", errno.EPERM, (condition,)) for condition in conditions]
