"""Prefer, as far as commands go."""

from __future__ import annotations

import pytest

from api.prefer import Preference, foreground_seconds, parse_prefer


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (None, Preference()),
        ("", Preference()),
        ("wait=10", Preference(False, 10)),
        ('WAIT = "7"', Preference(False, 7)),
        ("respond-async, wait=5", Preference(True, 5)),
        ("wait=5;x=y, wait=9", Preference(False, 5)),
        ("wait=-1", Preference()),
        ("wait=ten, respond-async;a", Preference(True, None)),
        ("return=minimal", Preference()),
        ("wait=" + "9" * 50, Preference()),
    ],
)
def test_what_is_malformed_is_ignored(header: str | None, expected: Preference) -> None:
    assert parse_prefer(header) == expected


@pytest.mark.parametrize(
    ("preference", "background", "seconds"),
    [
        (Preference(), False, 300),
        (Preference(), True, 0),
        (Preference(True), False, 0),
        (Preference(True, 5), False, 5),
        (Preference(False, 5), True, 0),
        (Preference(False, 900), False, 300),
        (Preference(False, 0), False, 0),
    ],
)
def test_how_long_an_answer_may_take(preference: Preference, background: bool, seconds: int) -> None:
    assert foreground_seconds(preference, background, 300) == seconds


def test_the_answer_says_what_was_taken_up() -> None:
    assert parse_prefer("wait=3, respond-async").applied == {"Preference-Applied": "respond-async, wait=3"}
    assert parse_prefer("nonsense").applied == {}
