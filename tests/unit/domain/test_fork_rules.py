"""Which sandboxes can be copied, and how."""

from __future__ import annotations

import dataclasses

import pytest

from sandloom.errors import SandboxBusy, SandboxSuspended, StaleRoute, SuspendInProgress
from sandloom.ids import SandboxKey
from sandloom.sandboxes.fork_rules import WAYS, ForkWay, fork_way
from sandloom.sandboxes.records import Route
from sandloom.sandboxes.states import SandboxStatus

ROUTE = Route(
    SandboxKey("default", "box"), "scope", "profile", "hash", "w1", 1, "queue", "", 3, 200_000, SandboxStatus.READY,
    "local", "kept", "root", 0, None, None, 0, 0, 0,
)  # fmt: skip


def test_every_status_has_a_way_or_an_error():
    assert set(WAYS) == set(SandboxStatus)


@pytest.mark.parametrize(
    ("status", "snapshot", "expected"),
    [
        ("ASSIGNED", None, ForkWay.FILES),
        ("READY", None, ForkWay.FILES),
        ("READY", "left over", ForkWay.FILES),
        ("SUSPENDED", "snap", ForkWay.SNAPSHOT),
        ("SUSPENDED", None, SandboxSuspended),
        ("SUSPENDING", None, SuspendInProgress),
        ("RUNNING", None, SandboxBusy),
        ("RELEASING", None, StaleRoute),
        ("RELEASED", "left over", StaleRoute),
    ],
)
def test_the_way_of_a_copy(status: str, snapshot: str | None, expected: ForkWay | type[Exception]):
    source = dataclasses.replace(ROUTE, status=SandboxStatus(status), snapshot=snapshot)
    if isinstance(expected, ForkWay):
        assert fork_way(source, 3) is expected
    else:
        with pytest.raises(expected):
            fork_way(source, 3)
    with pytest.raises(StaleRoute):
        fork_way(source, 2)
