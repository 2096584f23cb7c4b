"""The list itself."""

from __future__ import annotations

import errno

import pytest

from sandloom.execution import seccomp_rules
from sandloom.execution.seccomp_rules import Condition, rules


def refused(call: str, *arguments: int, machine: str = "x86_64") -> int:
    """The errno that the rules answer with, 0 when none applies."""

    def holds(condition: Condition) -> bool:
        argument = arguments[condition.argument]
        return argument > condition.value if condition.mask is None else argument & condition.mask == condition.value

    return next((rule.error for rule in rules(machine) if rule.call == call and all(map(holds, rule.conditions))), 0)


def test_every_answer_is_an_error_that_programs_know():
    known = {errno.EPERM, errno.ENOSYS, errno.EAFNOSUPPORT, errno.EPROTONOSUPPORT}
    assert {rule.error for rule in rules("x86_64")} == known


def test_no_call_is_listed_twice():
    names = [name for calls in seccomp_rules.ALWAYS.values() for name in calls]
    assert len(names) == len(set(names))
    assert set(seccomp_rules.NUMBERS) <= set(names)
    assert all(number >= 424 for number in seccomp_rules.NUMBERS.values())


@pytest.mark.parametrize(
    "call",
    ["ptrace", "process_vm_readv", "kcmp", "mbind", "move_pages", "seccomp", "landlock_create_ruleset", "execve"],
)
def test_what_debuggers_and_runtimes_need_is_left_alone(call):
    assert not [rule for rule in rules("x86_64") if rule.call == call]


@pytest.mark.parametrize(("machine", "place"), [("x86_64", 0), ("aarch64", 0), ("s390x", 1)])
def test_the_flags_of_clone_are_where_the_machine_has_them(machine, place):
    new_user, signal_child = 0x10000000, 17
    arguments = [0, 0]
    arguments[place] = new_user | signal_child
    assert refused("clone", *arguments, machine=machine) == errno.EPERM
    arguments[place] = 0x3D0F00 | signal_child  # as threads and vfork do
    assert refused("clone", *arguments, machine=machine) == 0


def test_personalities():
    for value in (0, 8, 0x20000, 0x40000, 0x60008, 0xFFFFFFFF):
        assert refused("personality", value) == 0
    for value in (1, 6, 0x400000, 0x400008, 0x80000000, 0xFFFFFFFE, 0x7FFFFFFF):
        assert refused("personality", value) == errno.EPERM


def test_families():
    assert [refused("socket", family, 1, 0) for family in (1, 2, 10, 16)] == [0] * 4
    assert {refused("socket", family, 1, 0) for family in (*range(3, 10), *range(11, 16), *range(17, 47))} == {
        errno.EAFNOSUPPORT
    }
    assert refused("socket", 16, 3, 9) == errno.EPROTONOSUPPORT
    assert refused("socket", (1 << 32) | 40, 1, 0) == errno.EAFNOSUPPORT
    assert [refused("socketpair", family, 1, 0) for family in (1, 30)] == [0, errno.EAFNOSUPPORT]
