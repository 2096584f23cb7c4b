"""Large totals are remembered for a moment, small ones never."""

from __future__ import annotations

from sandloom.sandboxes.totals import KEPT_SECONDS, LARGE, Totals


def test_a_large_total_is_counted_again_only_later_and_a_small_one_always() -> None:
    now = [0.0]
    totals = Totals(lambda: now[0])
    assert [totals.of("few", lambda n=n: n) for n in (1, 2, LARGE - 1)] == [1, 2, LARGE - 1]  # type: ignore[misc]
    assert totals.of("many", lambda: LARGE) == LARGE
    assert totals.of("many", lambda: 0) == LARGE
    assert totals.of("others", lambda: 3) == 3
    now[0] = KEPT_SECONDS
    assert [totals.of("many", lambda n=n: n) for n in (5, 4)] == [5, 4]  # type: ignore[misc]


def test_questions_that_are_never_asked_again_are_forgotten() -> None:
    totals = Totals(lambda: 0.0)
    for number in range(1000):
        totals.of(number, lambda: LARGE)
    assert totals.of(0, lambda: 7) == 7
    assert totals.of(999, lambda: 7) == LARGE
