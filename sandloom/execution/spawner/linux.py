"""The few system calls that Python has no name for."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Container

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
_CLONE_NEWNS = 0x00020000
_MS_REC, _MS_SLAVE = 1 << 14, 1 << 19
_MNT_DETACH = 2
_CLOSE_RANGE_CLOEXEC = 1 << 2
_KEYCTL_JOIN_SESSION_KEYRING = 1
_SYS_KEYCTL = {"x86_64": 250, "aarch64": 219, "riscv64": 219, "ppc64le": 271, "s390x": 280}.get(os.uname().machine)
_SYS_RT_SIGACTION = {"x86_64": 13, "aarch64": 134, "riscv64": 134, "ppc64le": 173, "s390x": 174}.get(os.uname().machine)

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


def reset_thread_signals() -> None:
    """Give 32 and 33 their default back. libc keeps both for threads and offers no call for them; make ignores them."""
    action = ctypes.create_string_buffer(64)
    for number in (32, 33):
        if _SYS_RT_SIGACTION is not None:
            _libc.syscall(ctypes.c_long(_SYS_RT_SIGACTION), number, action, None, ctypes.c_size_t(8))


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


def close_all_above_at_exec(fd: int) -> None:
    """Mark every descriptor above ``fd`` to be closed by the next exec."""
    last = ctypes.c_uint(0xFFFFFFFF)
    if hasattr(_libc, "close_range") and _libc.close_range(ctypes.c_uint(fd + 1), last, _CLOSE_RANGE_CLOEXEC) == 0:
        return
    for number in _open_fds():
        if number > fd:
            with contextlib.suppress(OSError):
                os.set_inheritable(number, False)


def close_all_but(kept: Container[int]) -> None:
    """Close every other descriptor."""
    for number in _open_fds():
        if number not in kept:
            with contextlib.suppress(OSError):
                os.close(number)


def _open_fds() -> list[int]:
    return [int(name) for name in os.listdir("/proc/self/fd")]
