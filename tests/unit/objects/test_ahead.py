"""Two stages of a stream side by side: in order, bounded, and over when either of them ends."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from sandloom.objects.ahead import ahead


def test_all_arrives_in_order() -> None:
    chunks = [b"%d" % number for number in range(1000)]
    assert list(ahead(chunks, 3)) == chunks
    assert list(ahead([], 1)) == []


def test_it_is_ahead_and_no_further_than_wanted() -> None:
    made: list[int] = []
    full = threading.Event()

    def making() -> Iterator[bytes]:
        for number in range(100):
            made.append(number)
            if number == 5:
                full.set()
            yield b"x"

    stage = ahead(making(), 4)
    next(stage)
    assert full.wait(30)
    # One was taken, four wait, and one is made and has no room.
    assert len(made) == 6
    assert len(list(stage)) == 99


def test_what_fails_is_raised_after_what_was_made_before() -> None:
    def failing() -> Iterator[bytes]:
        yield b"a"
        yield b"b"
        raise LookupError("gone")

    stage = ahead(failing(), 8)
    assert [next(stage), next(stage)] == [b"a", b"b"]
    with pytest.raises(LookupError, match="gone"):
        next(stage)


def test_closing_ends_the_thread_that_has_no_room() -> None:
    started: list[threading.Thread] = []

    def endless() -> Iterator[bytes]:
        started.append(threading.current_thread())
        while True:
            yield b"x"

    stage = ahead(endless(), 2)
    next(stage)
    stage.close()
    assert not started[0].is_alive()
