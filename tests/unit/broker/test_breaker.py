"""A breaker lets one caller find out, and everybody else go on."""

from __future__ import annotations

from sandloom.streams.breaker import Breaker


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_closed_breaker_lets_everybody_try() -> None:
    breaker = Breaker(1.0, Clock())
    assert all(breaker.allow() for _ in range(10))


def test_after_a_failure_nobody_tries_until_the_time_is_over() -> None:
    clock = Clock()
    breaker = Breaker(1.0, clock)
    assert breaker.failure()
    clock.now += 0.99
    assert not breaker.allow()


def test_then_one_caller_tries_and_the_others_still_fail_at_once() -> None:
    clock = Clock()
    breaker = Breaker(1.0, clock)
    breaker.failure()
    clock.now += 1.0
    assert [breaker.allow() for _ in range(3)] == [True, False, False]


def test_a_success_closes_it_for_everybody() -> None:
    clock = Clock()
    breaker = Breaker(1.0, clock)
    breaker.failure()
    clock.now += 1.0
    assert breaker.allow()
    breaker.success()
    assert breaker.allow()
    assert breaker.allow()


def test_a_caller_that_never_reports_does_not_keep_it_open_for_ever() -> None:
    clock = Clock()
    breaker = Breaker(1.0, clock)
    breaker.failure()
    clock.now += 1.0
    assert breaker.allow()
    clock.now += 1.0
    assert breaker.allow()


def test_only_the_failure_that_opens_it_is_news() -> None:
    breaker = Breaker(1.0, Clock())
    assert [breaker.failure() for _ in range(3)] == [True, False, False]
