"""Output on its way into rows: batched, in order, whole characters, never lost."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.output import (
    BATCH_BYTES,
    EVENT_BYTES,
    FLUSH_BYTES,
    MAX_RUNS,
    Events,
    Flusher,
    OutputBuffer,
    OutputWriter,
    batches,
    complete_length,
    pieces,
)  # fmt: skip

CHUNKS = st.lists(st.tuples(st.sampled_from(["stdout", "stderr"]), st.binary(min_size=1, max_size=40)), max_size=30)


def joined(events: Events, kind: str) -> bytes:
    return b"".join(data for name, data in events if name == kind)


@given(st.text(max_size=50), st.integers(min_value=0, max_value=200))
def test_the_complete_part_of_cut_text_is_text(text: str, cut: int) -> None:
    data = text.encode()[:cut]
    whole = complete_length(data)
    data[:whole].decode()
    assert len(data) - whole < 4


@given(st.binary(max_size=60))
def test_at_most_the_begin_of_one_character_is_held_back(data: bytes) -> None:
    held = data[complete_length(data) :]
    assert len(held) <= 3
    if held:
        assert held[0] >= 0xC0


@given(st.text(max_size=400), st.integers(min_value=4, max_value=64))
def test_pieces_of_text_are_text_and_add_up(text: str, limit: int) -> None:
    parts = pieces(text.encode(), limit)
    assert b"".join(parts) == text.encode()
    for part in parts:
        assert 0 < len(part) <= limit
        part.decode()


@given(st.binary(min_size=1, max_size=300), st.integers(min_value=4, max_value=16))
def test_pieces_of_anything_add_up(data: bytes, limit: int) -> None:
    parts = pieces(data, limit)
    assert b"".join(parts) == data
    assert all(0 < len(part) <= limit for part in parts)


@given(CHUNKS, st.lists(st.booleans(), max_size=30))
def test_every_byte_of_a_stream_comes_out_once_and_in_order(
    chunks: list[tuple[str, bytes]], taken_after: list[bool]
) -> None:
    buffer = OutputBuffer()
    events: Events = []
    for index, (kind, chunk) in enumerate(chunks):
        buffer.add(kind, chunk)
        if index < len(taken_after) and taken_after[index]:
            batch = buffer.take(final=False)
            if len(batch) % 2:
                buffer.put_back(batch)  # a write that did not happen
            else:
                events += batch
    events += buffer.take(final=True)
    assert buffer.waiting_bytes == 0
    for kind in ("stdout", "stderr"):
        assert joined(events, kind) == b"".join(chunk for name, chunk in chunks if name == kind)


def test_a_character_is_not_cut_between_two_events() -> None:
    buffer = OutputBuffer()
    buffer.add("stdout", "grün"[:3].encode()[:-1])
    assert buffer.take(final=False) == [("stdout", b"gr")]
    buffer.add("stderr", b"other")
    buffer.add("stdout", "ü".encode()[1:] + b"n")
    assert buffer.take(final=False) == [("stderr", b"other"), ("stdout", "ün".encode())]
    assert buffer.take(final=True) == []


def test_one_batch_is_bounded_and_the_rest_follows() -> None:
    buffer = OutputBuffer()
    buffer.add("stdout", b"x" * (2 * BATCH_BYTES + 5))
    first = buffer.take(final=False)
    assert len(joined(first, "stdout")) == BATCH_BYTES
    assert all(len(data) <= EVENT_BYTES for _, data in first)
    second = buffer.take(final=False)
    assert len(joined(second, "stdout")) == BATCH_BYTES
    assert joined(buffer.take(final=False), "stdout") == b"x" * 5


def test_many_alternations_are_merged_so_that_memory_stays_bounded() -> None:
    buffer = OutputBuffer()
    for number in range(5 * MAX_RUNS):
        buffer.add("stdout" if number % 2 else "stderr", b"%d " % number)
    events = buffer.take(final=True)
    assert len(events) <= MAX_RUNS + 2
    assert joined(events, "stderr") == b"".join(b"%d " % n for n in range(0, 5 * MAX_RUNS, 2))


def test_the_finish_is_cut_into_writes() -> None:
    events: Events = [("stdout", b"x" * EVENT_BYTES)] * 40
    runs = batches(events)
    assert [event for run in runs for event in run] == events
    assert len(runs) == 3
    assert batches([]) == [[]]


def test_each_note_is_an_event_of_its_own_and_stays_whole() -> None:
    buffer = OutputBuffer()
    notes = [b'{"note":%d}' % number for number in range(3)]
    for note in notes:
        buffer.add("note", note)
    buffer.add("stdout", b"x")
    buffer.put_back(buffer.take(final=False))
    assert buffer.take(final=False) == [*(("note", note) for note in notes), ("stdout", b"x")]
    for number in range(5 * MAX_RUNS):
        buffer.add("stdout" if number % 2 else "stderr", b".")
        if number % 1000 == 0:
            buffer.add("note", notes[0])
    events = buffer.take(final=True)
    assert [data for kind, data in events if kind == "note"] == notes[:1] * 5
    assert len(events) <= MAX_RUNS + 7


class FarRows:
    """A database whose every answer takes until ``answer`` is released once for it."""

    def __init__(self, asked: threading.Semaphore | None = None) -> None:
        self.batches: list[Events] = []
        self.asked = asked or threading.Semaphore(0)
        self.answer = threading.Semaphore(0)

    def append(self, events: Events) -> bool:
        self.batches.append(events)
        self.asked.release()
        assert self.answer.acquire(timeout=30)
        return True


def test_a_far_database_costs_a_command_its_distance_and_not_each_chunk(
    flusher: Flusher, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = FarRows()
    writer = OutputWriter(flusher, rows.append, lambda: None)
    writer.sink("stdout", b"0\n")
    assert rows.asked.acquire(timeout=30)
    for number in range(1, 400):
        writer.sink("stdout", b"%d\n" % number)
    assert len(rows.batches) == 1  # none beside the one that is on its way
    rows.answer.release()
    assert rows.asked.acquire(timeout=30)  # everything that came meanwhile, without another chunk
    writer.sink("stdout", b"last\n")
    monkeypatch.setattr("workers.output.FLUSH_SECONDS", 3600.0)  # the command ends before the next write is due
    rows.answer.release()
    rest = writer.finish()
    assert [len(batch) for batch in rows.batches] == [1, 1]
    assert joined(rows.batches[1], "stdout") == b"".join(b"%d\n" % number for number in range(1, 400))
    assert rest == [("stdout", b"last\n")]


def test_far_writes_of_several_commands_are_on_their_way_together() -> None:
    flusher = Flusher(3)
    asked = threading.Semaphore(0)
    rows = [FarRows(asked) for _ in range(4)]
    writers = [OutputWriter(flusher, row.append, lambda: None) for row in rows]
    try:
        for writer in writers:
            writer.sink("stdout", b"x")
        for _ in range(3):
            assert asked.acquire(timeout=30)
        together = [row for row in rows if row.batches]
        assert len(together) == 3  # as many as there may be
        together[0].answer.release()
        assert asked.acquire(timeout=30)
        assert all(row.batches for row in rows)
    finally:
        for row in rows:
            row.answer.release(2)
        flusher.close()


class Rows:
    """Where a writer's batches go; ``fail`` makes the next writes raise, ``fenced`` refuses them."""

    def __init__(self) -> None:
        self.events: Events = []
        self.writes = 0
        self.fail = 0
        self.fenced = False
        self.written = threading.Event()

    def append(self, events: Events) -> bool:
        if self.fail:
            self.fail -= 1
            raise ConnectionError("the database is away")
        self.writes += 1
        if self.fenced:
            return False
        self.events += events
        self.written.set()
        return True


@pytest.fixture
def flusher():
    flusher = Flusher(2)
    yield flusher
    flusher.close()


def test_a_first_chunk_is_written_without_more_to_come(flusher: Flusher) -> None:
    rows = Rows()
    writer = OutputWriter(flusher, rows.append, lambda: None)
    writer.sink("stdout", b"hello\n")
    assert rows.written.wait(10)
    assert rows.events == [("stdout", b"hello\n")]
    assert writer.finish() == []


def test_what_is_not_written_yet_is_left_for_the_end(flusher: Flusher) -> None:
    rows = Rows()
    writer = OutputWriter(flusher, rows.append, lambda: None)
    writer.sink("stdout", b"hello\n")
    assert rows.events + writer.finish() == [("stdout", b"hello\n")]


def test_a_burst_needs_few_writes(flusher: Flusher) -> None:
    rows = Rows()
    writer = OutputWriter(flusher, rows.append, lambda: None)
    for number in range(400):
        writer.sink("stdout", b"%d\n" % number)
    rest = writer.finish()
    assert joined(rows.events + rest, "stdout") == b"".join(b"%d\n" % number for number in range(400))
    assert rows.writes < 40


def test_a_database_that_is_away_delays_output_and_loses_none(flusher: Flusher) -> None:
    rows = Rows()
    rows.fail = 2
    writer = OutputWriter(flusher, rows.append, lambda: None)
    writer.sink("stdout", b"a" * FLUSH_BYTES)
    writer.sink("stdout", b"b" * FLUSH_BYTES)
    assert rows.written.wait(20)
    rest = writer.finish()
    assert joined(rows.events + rest, "stdout") == b"a" * FLUSH_BYTES + b"b" * FLUSH_BYTES


def test_a_refused_write_says_that_the_command_is_fenced(flusher: Flusher) -> None:
    rows = Rows()
    rows.fenced = True
    fenced = threading.Event()
    writer = OutputWriter(flusher, rows.append, fenced.set)
    writer.sink("stdout", b"x")
    assert fenced.wait(10)
    writer.sink("stdout", b"more")
    assert rows.writes == 1
