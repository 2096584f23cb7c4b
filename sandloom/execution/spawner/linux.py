"""The few system calls that Python has no name for."""

from __future__ import annotations

import contextlib
import ctypes
import os

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
_CLONE_NEWNS = 0x00020000
_MS_REC, _MS_SLAVE = 1 << 14, 1 << 19
_MNT_DETACH = 2
_KEYCTL_JOIN_SESSION_KEYRING = 1
_SYS_KEYCTL = {"x86_64": 250, "aarch64": 219, "riscv64": 219, "ppc64le": 271, "s390x": 280}.get(os.uname().machine)

_libc = ctypes.CDLL(None, use_errno=True)


def prctl(option: int, value: int) -> None:
    """Raises ``OSError``."""
    if _libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl {option}")


def become_subreaper() -> None:
    """Orphaned descendants come to this process instead of PID 1."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(signal_number: int) -> None:
    """Have the kernel send ``signal_number`` when the parent thread ends; cleared by a change of credentials."""
    prctl(PR_SET_PDEATHSIG, signal_number)


def unshare_mounts() -> None:
    """A mount table of this process's own, which hears of the other's later mounts but is not heard. ``OSError``."""
    _checked(_libc.unshare(_CLONE_NEWNS), "unshare")
    _checked(_libc.mount(b"none", b"/", None, ctypes.c_ulong(_MS_REC | _MS_SLAVE), None), "mount")


def enter_mounts(namespace_fd: int) -> None:
    """Raises ``OSError``."""
    _checked(_libc.setns(namespace_fd, _CLONE_NEWNS), "setns")


def detach(target: str) -> None:
    """Unmount with everything below, whether it is in use or not. Raises ``OSError``."""
    _checked(_libc.umount2(os.fsencode(target), _MNT_DETACH), f"umount {target}")


def _checked(result: int, what: str) -> None:
    if result != 0:
        raise OSError(ctypes.get_errno(), what)


def join_empty_session_keyring() -> None:
    """Leave the inherited session keyring for a new anonymous one. A kernel without keyrings has nothing to leak."""
    if _SYS_KEYCTL is None:
        raise OSError(38, "no keyctl number for this architecture")
    if _libc.syscall(ctypes.c_long(_SYS_KEYCTL), ctypes.c_ulong(_KEYCTL_JOIN_SESSION_KEYRING), None) < 0:
        error = ctypes.get_errno()
        if error != 38:
            raise OSError(error, "keyctl(KEYCTL_JOIN_SESSION_KEYRING)")


def close_all_above(fd: int) -> None:
    """Close every descriptor above ``fd``. Not ``os.closerange``: that may try a million numbers one by one."""
    if hasattr(_libc, "close_range") and _libc.close_range(ctypes.c_uint(fd + 1), ctypes.c_uint(0xFFFFFFFF), 0) == 0:
        return
    for name in os.listdir("/proc/self/fd"):
        if int(name) > fd:
            with contextlib.suppress(OSError):
                os.close(int(name))
