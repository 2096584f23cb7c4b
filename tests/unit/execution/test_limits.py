"""Limits as the kernel's numbers."""

from __future__ import annotations

import resource

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandloom.execution import limits
from sandloom.execution.spec import Limits


def by_number(triples):
    return {number: (soft, hard) for number, soft, hard in triples}


def test_a_uid_of_its_own_has_a_bound_on_processes_and_others_have_none():
    assert by_number(limits.rlimits(Limits(max_processes=9), uid_separation=True))[resource.RLIMIT_NPROC] == (9, 9)
    assert resource.RLIMIT_NPROC not in by_number(limits.rlimits(Limits(), uid_separation=False))


@pytest.mark.parametrize("uid_separation", [True, False])
def test_no_core_goes_anywhere_and_cpu_time_warns_first(uid_separation):
    found = by_number(limits.rlimits(Limits(cpu_seconds=7), uid_separation=uid_separation))
    assert found[resource.RLIMIT_CORE][0] <= 1
    assert found[resource.RLIMIT_CPU] == (7, 8)


@given(st.integers(1, 1 << 40), st.integers(0, 1 << 40), st.integers(0, 1 << 40))
def test_clamping_never_exceeds_the_bound(soft, extra, bound):
    number, low, high = limits.clamp((3, soft, soft + extra), bound)
    assert number == 3
    assert low <= bound
    assert low <= high <= bound
    assert limits.clamp((3, soft, soft + extra), resource.RLIM_INFINITY) == (3, soft, soft + extra)
