"""The exit code of a command that ran in a sandbox."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandloom.cli.connection import connect, refused_token
from sandloom.cli.invocation import Invocation, Stop
from sandloom.cli.remote_files import _split
from sandloom.cli.remote_runs import _download_pair, _upload_pair, exit_code
from sandloom.cli.several import each
from sandloom.errors import SandboxNotFound, SchemaBehind, SettingsInvalid, Unauthorized
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
    with pytest.raises(Stop, match="is written ID:/workspace/"):
        _split("a:../b:/x")


def test_an_upload_may_name_its_path(tmp_path) -> None:
    file = tmp_path / "f.txt"
    file.write_text("")
    assert _upload_pair(str(file)) == (str(file), "/workspace/f.txt")
    assert _upload_pair(f"{file}:/workspace/d/g") == (str(file), "/workspace/d/g")
    assert _upload_pair(f"{file}:g") == (str(file), "/workspace/g")
    with pytest.raises(Stop, match="is a directory"):
        _upload_pair(str(tmp_path))


def test_a_download_does_not_meet_a_directory_of_its_name(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert _download_pair("d/out") == ("/workspace/d/out", "out")
    Path("out").mkdir()
    with pytest.raises(Stop, match="out is a directory here"):
        _download_pair("/workspace/out")


def test_one_that_fails_keeps_none_of_the_others_back(capsys: pytest.CaptureFixture[str]) -> None:
    def call(name: str) -> dict[str, object]:
        if name in faults:
            raise faults[name]
        return {"name": name}

    faults = {"b": SandboxNotFound(), "d": SchemaBehind(), "refused": Unauthorized()}
    assert each("abcd", call) == ([{"name": "a"}, {"name": "c"}], 1)
    assert [line.split(": ")[1:3] for line in capsys.readouterr().err.splitlines()] == [
        ["SANDBOX_NOT_FOUND", "b"],
        ["SANDBOX_SCHEMA_BEHIND", "d"],
    ]
    assert each("dba", call) == ([{"name": "a"}], 3)
    with pytest.raises(Unauthorized):
        each(["a", "refused", "b"], call)


@pytest.mark.parametrize(
    ("environ", "dotenv", "source"),
    [
        ({"SANDBOX_API_KEY": "s3cret", "SANDBOX_INTERNAL_TOKEN": "other"}, "", "token of SANDBOX_API_KEY;"),
        ({"SANDBOX_INTERNAL_TOKEN": "s3cret"}, "", "token of SANDBOX_INTERNAL_TOKEN;"),
        ({}, "SANDBOX_API_KEY=s3cret\n", "token of SANDBOX_API_KEY in {here}/.env;"),
        ({"SANDBOX_DATA_DIR": "/nowhere"}, "", "token of the file /nowhere/token;"),
    ],
)
def test_of_a_refused_token_the_source_is_said_and_not_the_value(tmp_path, environ, dotenv, source) -> None:
    (tmp_path / ".env").write_text(dotenv)
    said = refused_token(Invocation(environ=environ, dotenv=tmp_path / ".env"))
    assert source.format(here=tmp_path) in said
    assert "s3cret" not in said


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("BASE_URL", "127.0.0.1:18199"),
        ("BASE_URL", "localhost:18199"),
        ("BASE_URL", "ftp://127.0.0.1"),
        ("BASE_URL", "http://"),
        ("BASE_URL", "http://127.0.0.1:abc"),
        ("PORT", "abc"),
        ("PORT", "70000"),
        ("API_KEY", "s3cret\nmore"),
        ("INTERNAL_TOKEN", "s3cret möre"),
        ("TENANT", "a\nb"),
    ],
)
def test_a_setting_of_a_client_that_cannot_work_is_named(tmp_path, name: str, value: str) -> None:
    environ = {"SANDBOX_INTERNAL_TOKEN": "t", f"SANDBOX_{name}": value}
    with pytest.raises(SettingsInvalid, match=rf"SANDBOX_{name}\b.* must be ") as raised:
        connect(Invocation(environ=environ, dotenv=tmp_path / ".env"))
    assert "s3cret" not in str(raised.value)
