"""What the filter refuses is an error for the program, never its death, and at every level the same."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import shutil
import subprocess
from dataclasses import replace

import pytest

from sandloom.execution import seccomp, seccomp_rules
from sandloom.execution.spec import IsolationUnavailable

# Calls by number and arguments, answers by errno; the program must live through all of them.
CALLER = """
import ctypes, json, sys
libc = ctypes.CDLL(None, use_errno=True)
answers = []
for number, *arguments in json.loads(sys.argv[1]):
    padded = [ctypes.c_ulong(value) for value in (arguments + [0] * 6)[:6]]
    result = libc.syscall(ctypes.c_long(number), *padded)
    answers.append(ctypes.get_errno() if result == -1 else 0)
print(json.dumps(answers))
"""
CLONE_NEW = [0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000]
SIGCHLD = 17
ALL_BITS = 0xFFFFFFFF

pytestmark = pytest.mark.bwrap


@pytest.fixture(scope="module")
def number_of():
    try:
        library = ctypes.CDLL(seccomp.LIBRARY)
    except OSError:
        pytest.skip(f"missing: {seccomp.LIBRARY}")

    def number(name: str) -> int:
        found = library.seccomp_syscall_resolve_name(name.encode())
        return found if found >= 0 else seccomp_rules.NUMBERS.get(name, -1)

    return number


@pytest.fixture
def filtered(sandbox):
    if sandbox.template.plan.seccomp_file is None:
        pytest.skip("missing: a seccomp filter, see the probe")
    return sandbox


def answers(sandbox, calls) -> list[int]:
    ran = sandbox.run("python3", "-c", CALLER, json.dumps(calls))
    assert ran.verdict.exit_code == 0, ran
    return json.loads(ran.text)


def test_every_call_on_the_list_is_refused_with_its_error(filtered, number_of):
    expected = {name: error for error, names in seccomp_rules.ALWAYS.items() for name in names if number_of(name) >= 0}
    assert len(expected) > 40
    seen = answers(filtered, [[number_of(name)] for name in expected])
    assert dict(zip(expected, seen, strict=True)) == expected


def test_it_is_the_filter_that_refuses(filtered, number_of):
    names = ("io_uring_setup", "keyctl", "name_to_handle_at", "clone3")
    calls = [[number_of(name)] for name in names]
    plan = replace(filtered.template.plan, seccomp_file=None)
    without = filtered.run("python3", "-c", CALLER, json.dumps(calls), plan=plan)
    for seen_without, seen_with in zip(json.loads(without.text), answers(filtered, calls), strict=True):
        assert seen_with in (errno.EPERM, errno.ENOSYS)
        assert seen_without != seen_with


def test_namespaces_cannot_be_made(filtered, number_of):
    unshare, clone = number_of("unshare"), number_of("clone")
    time_namespace = 0x80
    calls = [[unshare, flag] for flag in (*CLONE_NEW, time_namespace)]
    calls += [[clone, flag | SIGCHLD] for flag in CLONE_NEW]
    assert set(answers(filtered, calls)) == {errno.EPERM}


def test_unsharing_what_is_no_namespace_works(filtered, number_of):
    clone_fs, clone_files = 0x200, 0x400
    assert answers(filtered, [[number_of("unshare"), clone_fs | clone_files]]) == [0]


@pytest.mark.parametrize("high_bits", [0, 1 << 32])
def test_input_cannot_be_pushed_into_a_terminal(filtered, number_of, high_bits):
    # On a bad descriptor the kernel itself would say EBADF. It looks at the low 32 bits of the request only.
    tiocsti, tioclinux, tcgets = 0x5412, 0x541C, 0x5401
    calls = [[number_of("ioctl"), 999, request | high_bits] for request in (tiocsti, tioclinux, tcgets)]
    assert answers(filtered, calls) == [errno.EPERM, errno.EPERM, errno.EBADF]


def test_sockets_of_odd_families_cannot_be_made(filtered, number_of):
    stream, raw = 1, 3
    socket = number_of("socket")
    odd = [[socket, family, stream] for family in (4, 9, 15, 17, 29, 31, 38, 40, 44, 40 | 1 << 32, 9 | 1 << 32)]
    assert set(answers(filtered, odd)) == {errno.EAFNOSUPPORT}
    netlink, audit, route = 16, 9, 0
    usual = [[socket, family, stream] for family in (1, 2)]
    seen = answers(filtered, [[socket, netlink, raw, audit], [socket, netlink, raw, route], *usual])
    assert seen == [errno.EPROTONOSUPPORT, 0, 0, 0]


def test_only_harmless_personalities_can_be_taken(filtered, number_of):
    personality = number_of("personality")
    no_randomize, linux_32 = 0x40000, 8
    harmless = [[personality, value] for value in (ALL_BITS, 0, no_randomize, linux_32, 0)]
    assert set(answers(filtered, harmless)) == {0}
    read_implies_exec, mmap_page_zero, top = 0x400000, 0x100000, 0x80000000
    others = (read_implies_exec, mmap_page_zero, top | read_implies_exec, top, ALL_BITS - 1, 6)
    assert set(answers(filtered, [[personality, value] for value in others])) == {errno.EPERM}


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="x32 and int 0x80 are of x86_64")
def test_the_x32_numbers_are_refused(filtered, number_of):
    assert answers(filtered, [[0x40000000 | number_of("getpid")]]) == [errno.ENOSYS]


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="x32 and int 0x80 are of x86_64")
def test_the_32_bit_entry_is_refused(filtered, tmp_path):
    if shutil.which("cc") is None:
        pytest.skip("missing: cc")
    source = '#include <stdio.h>\nint main(void) { long r; __asm__ volatile("int $0x80" : "=a"(r) : "a"(20L)); '
    (tmp_path / "old.c").write_text(source + 'printf("%ld\\n", r); return 0; }\n')
    subprocess.run(["cc", "-o", filtered.workspace / "old", tmp_path / "old.c"], check=True)
    (filtered.workspace / "old").chmod(0o755)
    getpid = filtered.run("/workspace/old")
    assert (getpid.verdict.exit_code, int(getpid.text)) == (0, -errno.ENOSYS)


def test_children_have_the_filter_too(filtered, number_of):
    calls = json.dumps([[number_of("io_uring_setup")]])
    ran = filtered.run("/bin/sh", "-c", 'setsid python3 -c "$1" "$2"', "sh", CALLER, calls)
    assert json.loads(ran.text) == [errno.ENOSYS]


def test_the_filter_is_not_a_file_of_the_command(filtered):
    ran = filtered.run("python3", "-c", "import os; print(sorted(int(n) for n in os.listdir('/dev/fd')))")
    if ran.verdict.exit_code == 0:
        assert ran.text == "[0, 1, 2, 3]"  # the last one is the listing itself
    closed = filtered.run(
        "python3", "-c", "import os\nfor fd in range(3, 64):\n try: os.fstat(fd); print(fd)\n except OSError: pass"
    )
    assert closed.text == ""


def test_a_machine_without_the_library_says_so():
    with pytest.raises(IsolationUnavailable, match="not on this machine"):
        seccomp.build("libseccomp-that-is-not-there.so.9")
