"""What a model gets to read is bounded, and its parts make up the whole."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandloom.errors import Unavailable, ValidationFailed
from sandloom.mcp.results import ExecResult, file_part, output
from sandloom.mcp.texts import error_text, exec_text, read_text


def exec_result(stdout: str, *, offset: int = 0, limit: int = 10, status: str = "SUCCEEDED") -> ExecResult:
    return ExecResult(
        sandbox_id="box", exec_id="run-1", generation=1, status=status, finished=status == "SUCCEEDED", exit_code=0,
        signal=None, reason="exit", detail=None, error=None, stdout=output(stdout, offset, limit),
        stderr=output("", 0, limit), truncated=False, duration_ms=5, usage=None,
    )  # fmt: skip


@given(st.text(), st.integers(1, 7))
def test_parts_of_a_stream_make_up_the_whole(text: str, limit: int) -> None:
    read, offset = "", 0
    while True:
        part = output(text, offset, limit)
        assert len(part.text) <= limit
        read += part.text
        if part.next_offset is None:
            break
        offset = part.next_offset
    assert read == text


@pytest.mark.parametrize(
    ("offset", "text", "start", "following"),
    [(-3, "789", 7, None), (-30, "01234", 0, 5), (10, "", 10, None), (99, "", 10, None), (8, "89", 8, None)],
)
def test_an_offset_counts_from_the_end_too_and_stays_inside(
    offset: int, text: str, start: int, following: int | None
) -> None:
    part = output("0123456789", offset, 5)
    assert (part.text, part.offset, part.next_offset, part.total_chars) == (text, start, following, 10)


@given(st.one_of(st.text().map(str.encode), st.binary()), st.integers(1, 9))
def test_parts_of_a_file_make_up_the_whole(data: bytes, limit: int) -> None:
    read, offset = b"", 0
    while True:
        part = file_part("/workspace/a", data[offset : offset + limit], offset, len(data))
        read += part.content.encode() if part.content is not None else base64.b64decode(part.content_base64 or "")
        if part.next_offset is None:
            break
        assert part.next_offset > offset
        offset = part.next_offset
    assert read == data


def test_a_character_that_is_cut_is_left_for_the_next_part() -> None:
    part = file_part("/workspace/a", "grü".encode()[:3], 0, 7)
    assert (part.content, part.next_offset) == ("gr", 2)
    assert file_part("/workspace/a", b"\xff\x00", 0, 2).content is None


def test_a_shortened_stream_says_how_to_read_on() -> None:
    text = exec_text(exec_result("x" * 30, offset=5))
    assert "SUCCEEDED: exec_id run-1, exit code 0, 5 ms" in text
    assert "[characters 5 to 15 of 30; sandbox_exec_status with this exec_id and stdout_offset=15" in text
    assert "stderr" not in text
    assert "[" not in exec_text(exec_result("short\n"))


def test_a_command_that_goes_on_says_so() -> None:
    assert "sandbox_exec_status" in exec_text(exec_result("", status="RUNNING"))


def test_a_file_is_its_content_alone_unless_there_is_more() -> None:
    assert read_text(file_part("/workspace/a", b"abc", 0, 3)) == "abc"
    assert "offset=3" in read_text(file_part("/workspace/a", b"abc", 0, 9))


def test_an_error_begins_with_its_code_and_ends_with_advice() -> None:
    lines = error_text(ValidationFailed(errors=[{"field": "argv", "message": "is missing"}])).splitlines()
    assert lines[0].startswith("VALIDATION_FAILED: ")
    assert lines[1:] == ["- argv: is missing", "Change the call before sending it again."]
    assert "run-1" in error_text(Unavailable(exec_id="run-1"))
    assert error_text(Unavailable("a\ud800b")).startswith("SERVICE_UNAVAILABLE: a?b")
