"""The few system calls that Python has no name for."""

from __future__ import annotations

import contextlib
import ctypes
import os

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
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
