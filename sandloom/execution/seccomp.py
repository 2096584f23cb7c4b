"""The seccomp filter as a BPF program, built once at start by libseccomp and given to every bwrap as a descriptor."""

from __future__ import annotations

import ctypes
import errno
import os
import tempfile
from pathlib import Path

from sandloom.execution import seccomp_rules
from sandloom.execution.spec import IsolationUnavailable

LIBRARY = "libseccomp.so.2"

_ALLOW = 0x7FFF0000
_ERRNO = 0x00050000
_ATTRIBUTE_BAD_ARCHITECTURE = 2
_ATTRIBUTE_OPTIMIZE = 8
_BINARY_TREE = 2
_GREATER = 6
_MASKED_EQUAL = 7


class _Comparison(ctypes.Structure):
    _fields_ = (
        ("arg", ctypes.c_uint),
        ("op", ctypes.c_int),
        ("datum_a", ctypes.c_uint64),
        ("datum_b", ctypes.c_uint64),
    )


def write_filter(path: Path) -> None:
    """Make the program file at ``path``. Raises ``IsolationUnavailable`` (no library, unknown machine) and OSError."""
    program = build()
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as stream:
        stream.write(program)
    os.chmod(stream.name, 0o444)
    os.replace(stream.name, path)


def build(library_name: str = LIBRARY) -> bytes:
    """The program for this machine. Raises ``IsolationUnavailable``."""
    library = _load(library_name)
    context = library.seccomp_init(ctypes.c_uint32(_ALLOW))
    if not context:
        raise IsolationUnavailable(f"{library_name} cannot make a filter for this machine")
    handle = ctypes.c_void_p(context)
    try:
        # Foreign ABIs (i386 and x32 on x86_64, arm on aarch64) would go around every rule, which names numbers.
        _check(
            library.seccomp_attr_set(
                handle, ctypes.c_int(_ATTRIBUTE_BAD_ARCHITECTURE), ctypes.c_uint32(_ERRNO | errno.ENOSYS)
            ),
            "refusing foreign ABIs",
        )
        # libseccomp before 2.5 has no tree; the filter then only takes longer.
        library.seccomp_attr_set(handle, ctypes.c_int(_ATTRIBUTE_OPTIMIZE), ctypes.c_uint32(_BINARY_TREE))
        for rule in seccomp_rules.rules(os.uname().machine):
            _add(library, handle, rule)
        return _export(library, handle)
    finally:
        library.seccomp_release(handle)


def _load(name: str) -> ctypes.CDLL:
    try:
        library = ctypes.CDLL(name)
    except OSError as error:
        raise IsolationUnavailable(f"seccomp needs {name}, which is not on this machine") from error
    library.seccomp_init.restype = ctypes.c_void_p
    return library


def _add(library: ctypes.CDLL, handle: ctypes.c_void_p, rule: seccomp_rules.Rule) -> None:
    number = library.seccomp_syscall_resolve_name(rule.call.encode("ascii"))
    if number < 0:
        # Not a call of this architecture, or newer than the library.
        number = seccomp_rules.NUMBERS.get(rule.call, -1)
        if number < 0:
            return
    comparisons = (_Comparison * max(1, len(rule.conditions)))(*map(_comparison, rule.conditions))
    action = ctypes.c_uint32(_ERRNO | rule.error)
    count = ctypes.c_uint(len(rule.conditions))
    _check(library.seccomp_rule_add_array(handle, action, number, count, comparisons), rule.call)


def _comparison(condition: seccomp_rules.Condition) -> _Comparison:
    if condition.mask is None:
        return _Comparison(condition.argument, _GREATER, condition.value, 0)
    return _Comparison(condition.argument, _MASKED_EQUAL, condition.mask, condition.value)


def _export(library: ctypes.CDLL, handle: ctypes.c_void_p) -> bytes:
    fd = os.memfd_create("seccomp", os.MFD_CLOEXEC)
    with open(fd, "rb") as stream:
        _check(library.seccomp_export_bpf(handle, ctypes.c_int(fd)), "exporting")
        stream.seek(0)
        return stream.read()


def _check(result: int, what: str) -> None:
    if result != 0:
        raise IsolationUnavailable(f"libseccomp: {what}: {os.strerror(-result)}")
