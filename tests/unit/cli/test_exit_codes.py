"""The exit code of a command that ran in a sandbox."""

from __future__ import annotations

import pytest

from sandloom.cli.remote_files import _into, _split
from sandloom.cli.remote_runs import _upload_pair, exit_code
from sandloom.sdk import CommandFailed, Result


def record(**values: object) -> Result:
    base = {
        "sandbox_id": "box", "exec_id": "run", "generation": 1, "status": "SUCCEEDED", "argv": ["x"],
        "exec_scope": None, "exit_code": 0, "signal": None, "reason": "exit", "detail": None, "error": None,
        "truncated": False, "duration_ms": 1, "queued_ms": 0, "usage": None, "labels": {}, "last_seq": 2,
        "created_at": "2026-01-01T00:00:00+00:00", "started_at": None, "finished_at": None,
    }  # fmt: skip
    return Result.model_validate({**base, **values})


@pytest.mark.parametrize(
    ("values", "code"),
    [
        ({}, 0),
        ({"status": "FAILED", "exit_code": 3}, 3),
        ({"status": "FAILED", "exit_code": None, "signal": 9, "reason": "signal"}, 137),
        ({"status": "TIMED_OUT", "exit_code": None, "signal": 15, "reason": "timeout"}, 124),
        ({"status": "CANCELLED", "exit_code": None, "reason": "cancelled"}, 130),
        ({"status": "FAILED", "exit_code": 127, "error": "SANDBOX_PROGRAM_NOT_FOUND"}, 127),
        ({"status": "WORKER_LOST", "exit_code": None, "reason": "worker_lost"}, 1),
    ],
)
def test_it_is_the_command_s_own_where_there_is_one(values: dict[str, object], code: int) -> None:
    assert exit_code(record(**values)) == code


def test_a_record_knows_whether_it_is_over_and_good() -> None:
    assert record().ok
    assert record().check().finished
    assert not record(status="RUNNING", exit_code=None).finished
    with pytest.raises(CommandFailed, match="exit code 3"):
        record(status="FAILED", exit_code=3).check()


def test_output_is_exact_in_base64_and_empty_where_absent() -> None:
    assert record(stdout="/wA=", encoding="base64").stdout_bytes == b"\xff\x00"
    assert record(stdout=None).stdout == ""
    assert record(stdout="ü").stdout_bytes == "ü".encode()


def test_a_place_splits_at_the_first_colon_before_a_slash() -> None:
    assert _split("a:b:/workspace/x:/y") == ("a:b", "/workspace/x:/y")
    assert _split("a:b") == ("a:b", None)
    assert (_into("/workspace/", "f"), _into("/workspace/g", "f")) == ("/workspace/f", "/workspace/g")


def test_an_upload_may_name_its_path(tmp_path) -> None:
    file = tmp_path / "f.txt"
    file.write_text("")
    assert _upload_pair(str(file)) == (file, "/workspace/f.txt")
    assert _upload_pair(f"{file}:/workspace/d/g") == (file, "/workspace/d/g")
    assert _upload_pair(f"{file}:g") == (file, "/workspace/g")
