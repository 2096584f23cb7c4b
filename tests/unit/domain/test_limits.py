"""Limits of a command against what the deployment allows."""

from __future__ import annotations

import pytest

from sandloom.errors import LimitsExceeded
from sandloom.execs.admission import ExecPolicy, check_limits, limits_allowed

BUDGETED = ExecPolicy(limits=limits_allowed(enforced=True, memory_bytes=100, pids=5))


@pytest.mark.parametrize("limits", [{}, {"memory_bytes": 100}, {"pids": 1, "cpu_percent": 10_000}])
def test_at_most_the_deployments(limits: dict[str, int]) -> None:
    check_limits(limits, BUDGETED)


@pytest.mark.parametrize(("limits", "number"), [({"memory_bytes": 101}, "100"), ({"pids": 6, "cpu_percent": 1}, "5")])
def test_above_is_refused_with_the_number(limits: dict[str, int], number: str) -> None:
    with pytest.raises(LimitsExceeded, match=rf"limits\.{next(iter(limits))} .* {number} "):
        check_limits(limits, BUDGETED)


def test_what_cannot_be_enforced_is_refused() -> None:
    off = ExecPolicy(limits=limits_allowed(enforced=False, pids=5))
    check_limits({}, off)
    with pytest.raises(LimitsExceeded, match=r"cannot enforce limits\.pids"):
        check_limits({"pids": 1}, off)
