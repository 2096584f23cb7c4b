"""Limits of a command against what the deployment allows."""

from __future__ import annotations

import pytest

from sandloom.errors import LimitsExceeded
from sandloom.execs.admission import ExecPolicy, limits_allowed, limits_exceeded

BUDGETED = ExecPolicy(limits=limits_allowed(enforced=True, memory_bytes=100, pids=5))


@pytest.mark.parametrize("limits", [{}, {"memory_bytes": 100}, {"pids": 1, "cpu_percent": 10_000}])
def test_at_most_the_deployments(limits: dict[str, int]) -> None:
    assert limits_exceeded(limits, BUDGETED) is None


@pytest.mark.parametrize(("limits", "number"), [({"memory_bytes": 101}, "100"), ({"pids": 6, "cpu_percent": 1}, "5")])
def test_above_is_refused_with_the_number(limits: dict[str, int], number: str) -> None:
    with pytest.raises(LimitsExceeded, match=rf"limits\.{next(iter(limits))} .* {number} "):
        raise limits_exceeded(limits, BUDGETED) or AssertionError


def test_what_cannot_be_enforced_is_refused() -> None:
    off = ExecPolicy(limits=limits_allowed(enforced=False, pids=5))
    assert limits_exceeded({}, off) is None
    with pytest.raises(LimitsExceeded, match=r"cannot enforce limits\.pids"):
        raise limits_exceeded({"pids": 1}, off) or AssertionError
