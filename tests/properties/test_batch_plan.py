"""Whatever interrupts a batch, each attempt runs once, in an order that its jobs allow."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from sandloom.batch.graph import check
from sandloom.batch.jobs import Job
from sandloom.batch.plan import FINAL, Attempt, Begun, Ended, Plan, State
from sandloom.batch.retries import Outcome, Retries

RETRIES = Retries(most=1)
GOOD, BAD, NEVER = Outcome("SUCCEEDED", "exit"), Outcome("FAILED", "exit"), Outcome("TIMED_OUT", "queue_timeout")


@st.composite
def batches(draw: st.DrawFn) -> list[Job]:
    count = draw(st.integers(1, 8))
    order = draw(st.permutations(range(count)))
    jobs = []
    for place, number in enumerate(order):
        before = draw(st.sets(st.sampled_from(order[:place]), max_size=3)) if place else set()
        key = draw(st.sampled_from([None, None, "k1", "k2"]))
        waits = tuple(f"j{each}" for each in sorted(before))
        jobs.append(
            Job(
                f"j{number}",
                1,
                {"argv": ["x"]},
                sandbox=key,
                depends_on=waits,
                retries=draw(st.none() | st.integers(0, 2)),
            )
        )
    jobs.sort(key=lambda job: job.id)
    assert check(jobs) == []
    return jobs


@dataclass
class Service:
    """``runs``: attempts that it has run; asked for one again, it answers with the outcome of that run."""

    outcomes: dict[tuple[str, int], Outcome]
    runs: set[tuple[str, int]] = field(default_factory=set)
    journal: list[Begun | Ended] = field(default_factory=list)


@given(data=st.data(), jobs=batches(), concurrency=st.integers(1, 4))
def test_a_batch_that_is_interrupted_anywhere_ends_as_one_that_is_not(
    data: st.DataObject, jobs: list[Job], concurrency: int
) -> None:
    attempts = st.tuples(st.sampled_from([job.id for job in jobs]), st.integers(1, 3))
    service = Service(data.draw(st.dictionaries(attempts, st.sampled_from([BAD, NEVER]), max_size=5)))
    undisturbed = Service(service.outcomes)
    expected = _run(Plan(jobs, RETRIES), undisturbed, concurrency, itertools.repeat(False), lambda open_: open_[0])
    crashes = data.draw(st.lists(st.integers(1, 12), max_size=8))
    for steps in [*crashes, None]:
        plan = Plan(jobs, RETRIES)
        plan.restore(service.journal)
        crash = (
            itertools.repeat(False) if steps is None else iter([*[False] * (steps - 1), *itertools.repeat(True, 99)])
        )
        states = _run(plan, service, concurrency, crash, lambda open_: data.draw(st.sampled_from(open_)))
        if states is not None:
            break
    assert states == expected
    assert service.runs == undisturbed.runs
    assert plan.finished
    assert sum(plan.counts.values()) == len(jobs)
    assert all(plan.key_is_done(job.sandbox) for job in jobs if job.sandbox)


def _run(
    plan: Plan,
    service: Service,
    concurrency: int,
    crash: Iterator[bool],
    choose: Callable[[list[Attempt]], Attempt],
) -> dict[str, State] | None:
    """The final states, or None when the process was killed: between any two of its steps."""
    open_: list[Attempt] = []
    through = {entry.job for entry in service.journal if isinstance(entry, Ended) and entry.outcome.ok}
    while True:
        while len(open_) < concurrency and (attempt := plan.begin()) is not None:
            job = attempt.job
            assert set(job.depends_on) <= through
            assert job.sandbox is None or job.sandbox not in [each.job.sandbox for each in open_]
            assert attempt.uncertain or (job.id, attempt.number) not in service.runs
            open_.append(attempt)
            if not attempt.uncertain:
                service.journal.append(Begun(job.id, attempt.number))
            if next(crash):
                return None
        if not open_:
            assert set(plan.states.values()) <= FINAL
            return dict(plan.states)
        attempt = choose(open_)
        name, number = attempt.job.id, attempt.number
        service.runs.add((name, number))
        if next(crash):
            return None
        outcome = service.outcomes.get((name, number), GOOD)
        service.journal.append(Ended(name, number, outcome))
        if next(crash):
            return None
        open_.remove(attempt)
        through |= {name} if outcome.ok else set()
        plan.end(name, outcome)


def test_jobs_start_in_the_order_of_the_file_and_what_is_tried_again_comes_last() -> None:
    jobs = [Job(name, 1, {}) for name in "abc"]
    plan = Plan(jobs, RETRIES)
    first = plan.begin()
    assert first is not None
    assert plan.end("a", NEVER) == []
    order = []
    while (attempt := plan.begin()) is not None:
        order.append((attempt.job.id, attempt.number))
    assert (first.job.id, order) == ("a", [("b", 1), ("c", 1), ("a", 2)])


def test_what_waits_for_a_failure_is_skipped_through_and_through() -> None:
    jobs = [Job("a", 1, {}), Job("b", 2, {}, depends_on=("a",)), Job("c", 3, {}, depends_on=("b",))]
    plan = Plan(jobs, RETRIES)
    plan.begin()
    finals = plan.end("a", BAD)
    assert [(final.job.id, final.state, final.because) for final in finals] == [
        ("a", State.FAILED, None), ("b", State.SKIPPED, "a"), ("c", State.SKIPPED, "b"),
    ]  # fmt: skip
    assert plan.finished


def test_a_retry_that_an_earlier_run_made_stays_made_under_another_policy() -> None:
    jobs = [Job("a", 1, {}), Job("b", 2, {}, depends_on=("a",))]
    history: list[Begun | Ended] = [Begun("a", 1), Ended("a", 1, NEVER), Begun("a", 2)]
    plan = Plan(jobs, Retries(most=0))
    assert plan.restore(history) == []
    attempt = plan.begin()
    assert attempt is not None
    assert (attempt.number, attempt.uncertain) == (2, True)
    again = Plan(jobs, Retries(most=2))
    again.restore([Begun("a", 1), Ended("a", 1, NEVER)])
    attempt = again.begin()
    assert attempt is not None
    assert (attempt.number, attempt.uncertain) == (2, False)


def test_a_program_that_is_not_there_is_not_tried_again() -> None:
    missing = Outcome("FAILED", "not_started", "SANDBOX_PROGRAM_NOT_FOUND")
    assert not Retries(most=5).again(missing, 1, None, None)
    assert Retries(most=1).again(Outcome("FAILED", "not_started", "SANDBOX_LAUNCH_FAILED"), 1, None, None)
    assert not Retries(most=1).again(Outcome("FAILED", "not_started"), 2, None, None)
    assert Retries(most=0).again(Outcome("WORKER_LOST", "worker_lost"), 1, 1, frozenset({"worker_lost"}))
