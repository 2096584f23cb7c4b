"""What a command says of itself: JSON lines, each judged alone, bounded however it is written."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandloom.execution import notes
from sandloom.execution.notes import MAX_DEPTH, MAX_LINE_BYTES, MAX_LINES, MAX_TOTAL_BYTES, Notes, parse

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**12), 10**12) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


class Pipe:
    """A FIFO, what was written into it, and what came of it."""

    def __init__(self, directory: Path) -> None:
        self.found: list[bytes] = []
        self.notes = Notes(str(directory), None, self._sink)
        self._writer = os.open(self.notes.path, os.O_WRONLY | os.O_NONBLOCK)

    def _sink(self, kind: str, data: bytes) -> None:
        assert kind == "note"
        self.found.append(data)

    def write(self, data: bytes) -> None:
        """All of it, however little fits at once."""
        while data:
            try:
                data = data[os.write(self._writer, data) :]
            except BlockingIOError:
                while self.notes.read():
                    pass

    def end(self) -> list[object]:
        self.notes.drain()
        os.close(self._writer)
        self.notes.close()
        return [json.loads(data) for data in self.found]


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipe]:
    pipe = Pipe(tmp_path)
    yield pipe
    assert list(tmp_path.iterdir()) == []


@given(JSON)
def test_any_json_comes_back_as_it_was(value: object) -> None:
    for ascii_only in (True, False):
        data = parse(json.dumps(value, ensure_ascii=ascii_only).encode())
        assert data is not None
        assert json.loads(data) == {"note": value}
        assert b"\n" not in data


@given(st.binary(max_size=60))
def test_anything_else_is_refused_and_never_raises(line: bytes) -> None:
    data = parse(line)
    assert data is None or json.loads(data)["note"] == json.loads(line)


@pytest.mark.parametrize(
    "line",
    [b"NaN", b"-Infinity", b"1e999", b'"\\ud800"', b"{", b"1 2", b"\xff", b"'x'", b"[" * 4000,
     b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1), b'{"a":' * 600 + b"1" + b"}" * 600],
)  # fmt: skip
def test_what_a_reader_could_not_parse_is_refused(line: bytes) -> None:
    assert parse(line) is None


def test_lines_are_events_and_what_is_no_json_is_counted(pipe: Pipe) -> None:
    pipe.write(b'{"step":"build"}\n\n  \nno json\n"ni')
    pipe.write('cht größer"\n[1, 2]'.encode())
    assert pipe.end() == [{"note": {"step": "build"}}, {"note": "nicht größer"}, {"note": [1, 2]}, {"dropped": 1}]


def test_a_line_that_is_too_long_is_dropped_and_the_next_is_not(pipe: Pipe) -> None:
    longest = b'"' + b"x" * (MAX_LINE_BYTES - 3) + b'"\n'
    pipe.write(longest + b'"x' + longest + b"1\n" + b"y" * (10 * MAX_LINE_BYTES) + b"\n2\n" + b"z" * MAX_LINE_BYTES)
    assert pipe.end() == [{"note": "x" * (MAX_LINE_BYTES - 3)}, {"note": 1}, {"note": 2}, {"dropped": 3}]


def test_number_and_size_are_bounded(pipe: Pipe) -> None:
    pipe.write(b"0\n" * (MAX_LINES + 50))
    assert pipe.end() == [{"note": 0}] * MAX_LINES + [{"dropped": 50}]


def test_what_comes_beyond_the_bound_is_counted_and_not_looked_at(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe.write(b"\n" * (MAX_LINES - 1) + b"0\n")
    while pipe.notes.read():
        pass
    monkeypatch.setattr(notes, "parse", None)
    pipe.write(b"1\n" * 20_000 + b"x" * (3 * MAX_LINE_BYTES) + b"\n2")
    assert pipe.end() == [{"note": 0}, {"dropped": 20_002}]


def test_all_notes_together_are_bounded(pipe: Pipe) -> None:
    line = b'"' + b"x" * (MAX_LINE_BYTES - 3) + b'"\n'
    pipe.write(line * 400)
    pipe.end()
    assert sum(map(len, pipe.found)) <= MAX_TOTAL_BYTES + 100
    assert json.loads(pipe.found[-1])["dropped"] > 100


def test_reading_pauses_so_that_a_writer_without_end_waits(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sandloom.execution.notes.time.monotonic", lambda: 100.0)
    assert pipe.notes.pause_seconds == 0
    pipe.write(b"1\n" * 10_000)
    assert pipe.notes.read() == notes.READ_BYTES
    assert pipe.notes.pause_seconds == pytest.approx(notes.PAUSE_SECONDS)
    pipe.end()
