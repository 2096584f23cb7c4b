"""The pure deciders: tables of moves, placement, admission, backoff."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import pytest

from sandloom.errors import (
    ParallelLimit,
    QueueFull,
    SandboxNotReady,
    SandboxSuspended,
    ScopeBusy,
    StaleRoute,
    WorkerLost,
)  # fmt: skip
from sandloom.execs.admission import ExecPolicy, refusal_to_admit, request_hash
from sandloom.execs.records import ExecRequest
from sandloom.execs.states import MOVES as EXEC_MOVES
from sandloom.execs.states import TERMINAL, ExecStatus, Reason, status_for
from sandloom.reclaim.policy import ReclaimPolicy, ring_again_delay_seconds
from sandloom.sandboxes.placement import SLACK, Candidate, bound, rank
from sandloom.sandboxes.states import MOVES, SandboxStatus, may_move


def test_every_status_has_a_row_in_its_table():
    assert set(MOVES) == set(SandboxStatus)
    assert set(EXEC_MOVES) == set(ExecStatus)
    assert all(not EXEC_MOVES[status] for status in TERMINAL)
    assert may_move(SandboxStatus.READY, SandboxStatus.RUNNING)
    assert not may_move(SandboxStatus.RELEASED, SandboxStatus.READY)


@pytest.mark.parametrize(
    ("reason", "exit_code", "status"),
    [
        ("exit", 0, "SUCCEEDED"), ("exit", 1, "FAILED"), ("exit", None, "FAILED"), ("signal", None, "FAILED"),
        ("timeout", None, "TIMED_OUT"), ("queue_timeout", None, "TIMED_OUT"), ("cancelled", 0, "CANCELLED"),
        ("worker_lost", None, "WORKER_LOST"), ("oom", 0, "FAILED"), ("not_started", 127, "FAILED"),
    ],
)  # fmt: skip
def test_status_for_a_reason(reason: str, exit_code: int | None, status: str):
    assert status_for(Reason(reason), exit_code) == status


def test_placement_prefers_isolation_then_room_then_load_then_chance():
    weak, full = Candidate("weak", 1, 1, 0, 10), Candidate("full", 1, 3, 9, 10)
    half, even, busy = Candidate("half", 1, 3, 1, 2), Candidate("even", 1, 3, 5, 10), Candidate("busy", 1, 3, 5, 10)
    order = rank([weak, full, half, even, busy], {"busy": 0.5, "full": 0.0}, [0.1, 0.1, 0.9, 0.2, 0.0])
    assert [c.worker_id for c in order] == ["even", "half", "busy", "full", "weak"]
    assert rank([], {}, []) == []
    assert rank([Candidate("none", 1, 1, 0, 0)], {}, [0.5])[0].worker_id == "none"


def test_a_placement_is_good_while_the_next_best_is_not_better():
    best, next_best = Candidate("a", 1, 3, 2, 10), Candidate("b", 1, 3, 10, 20)
    assert bound([best, next_best, Candidate("c", 1, 3, 19, 20)]) == 5 + SLACK
    assert bound([best, Candidate("equal", 1, 3, 1, 5)]) == 2 + SLACK
    assert bound([best, Candidate("weaker", 1, 2, 0, 10)]) is None
    assert bound([best]) is None


@dataclass(frozen=True)
class Row:
    status: str = "READY"
    generation: int = 4
    worker_epoch: int = 2
    owner_epoch: int = 2
    owner_status: str = "ACTIVE"
    owner_lease_us: int = 100
    now: int = 50
    active_execs: int = 0
    exclusive_exec_id: str | None = None
    queued: int = 0
    scope_taken: bool = False


POLICY = ExecPolicy(max_parallel_execs_per_sandbox=2, max_queued_execs=5)


@pytest.mark.parametrize(
    ("values", "scope", "expected"),
    [
        ({}, None, None),
        ({"active_execs": 1}, "a", None),
        ({"owner_status": "DRAINING"}, None, None),
        ({"generation": 5}, None, StaleRoute),
        ({"generation": 5, "status": "SUSPENDED", "owner_status": "GONE"}, None, StaleRoute),
        ({"status": "RELEASING"}, None, StaleRoute),
        ({"status": "RELEASED"}, None, StaleRoute),
        ({"status": "SUSPENDING"}, None, SandboxSuspended),
        ({"status": "SUSPENDED"}, None, SandboxSuspended),
        ({"owner_epoch": 3}, None, StaleRoute),
        ({"owner_lease_us": 50}, None, WorkerLost),
        ({"owner_status": "STOPPED"}, None, WorkerLost),
        ({"owner_status": "GONE"}, None, WorkerLost),
        ({"status": "ASSIGNED"}, None, SandboxNotReady),
        ({"exclusive_exec_id": "x", "active_execs": 1}, "a", ScopeBusy),
        ({"exclusive_exec_id": "x", "active_execs": 1}, None, ScopeBusy),
        ({"active_execs": 1}, None, ScopeBusy),
        ({"active_execs": 1, "scope_taken": True}, "a", ScopeBusy),
        ({"active_execs": 2}, "a", ParallelLimit),
        ({"queued": 5}, "a", QueueFull),
    ],
)
def test_admission(values: dict[str, object], scope: str | None, expected: type[Exception] | None):
    error = refusal_to_admit(dataclasses.replace(Row(), **values), 4, scope, POLICY)  # type: ignore[arg-type]
    assert type(error) is (expected or type(None))


def test_the_identity_of_a_request_is_its_content():
    base = ExecRequest("run", ("a", "b"), env={"A": "1", "B": "2"})
    assert request_hash(base) == request_hash(dataclasses.replace(base, env={"B": "2", "A": "1"}))
    others = [
        dataclasses.replace(base, argv=("a b",)), dataclasses.replace(base, stdin=b""),
        dataclasses.replace(base, exec_scope="a"), dataclasses.replace(base, timeout_seconds=300),
        dataclasses.replace(base, labels={"a": "b"}), dataclasses.replace(base, limits={"pids": 1}),
    ]  # fmt: skip
    assert len({request_hash(request) for request in [base, *others]}) == len(others) + 1


def test_doorbells_back_off_to_five_minutes():
    assert [ring_again_delay_seconds(rings) for rings in (0, 1, 2, 5, 6, 7, 10_000)] == [5, 10, 20, 160, 300, 300, 300]


def test_a_worker_is_declared_lost_only_after_its_own_fence():
    policy = ReclaimPolicy()
    assert policy.heartbeat_ttl_seconds < policy.fence_after_seconds
    assert policy.fence_after_seconds + policy.terminate_grace_seconds < policy.lost_after_seconds
