"""Client commands against a real service."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sandloom import Client
from sandloom.errors import SandboxNotFound
from sandloom.sdk import Sandbox
from tests.services.process import Process

pytestmark = pytest.mark.bwrap
Run = Callable[..., subprocess.CompletedProcess[Any]]


@pytest.fixture
def box(client: Client) -> Iterator[Sandbox]:
    with client.sandbox() as opened:
        yield opened


def test_run_is_the_command_s_output_and_exit_code(sandloom: Run) -> None:
    done = sandloom("run", "--", "sh", "-c", "echo out; echo err >&2; exit 7")
    assert (done.returncode, done.stdout, done.stderr) == (7, "out\n", "err\n")


def test_run_leaves_no_sandbox_unless_its_id_was_given(sandloom: Run, client: Client) -> None:
    before = {route.sandbox_id for route in client.sandboxes(status="READY")}
    assert sandloom("run", "true").returncode == 0
    assert {route.sandbox_id for route in client.sandboxes(status="READY")} == before
    assert sandloom("run", "--id", "kept-by-run", "--", "touch", "mark").returncode == 0
    assert sandloom("run", "--id", "kept-by-run", "--rm", "--", "cat", "mark").returncode == 0
    assert client.attach("kept-by-run").route.status == "RELEASED"


def test_run_carries_files_in_and_out(sandloom: Run, tmp_path: Path) -> None:
    (tmp_path / "in.bin").write_bytes(bytes(range(256)))
    done = sandloom(
        "run", "-i", "in.bin", "-i", "in.bin:b", "-o", "out.bin", "--", "sh", "-c", "cat in.bin b > out.bin"
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out.bin").read_bytes() == bytes(range(256)) * 2


def test_outputs_that_are_missing_are_said_and_the_exit_code_stays_the_command_s(sandloom: Run, tmp_path: Path) -> None:
    done = sandloom("run", "-o", "no", "-o", "built", "--", "sh", "-c", "echo it > built; exit 3")
    assert (done.returncode, (tmp_path / "built").read_text()) == (3, "it\n")
    assert done.stderr.startswith("sandloom: SANDBOX_FILE_NOT_FOUND: /workspace/no: ")
    assert len(done.stderr.splitlines()) == 1
    assert sandloom("run", "-o", "no", "--", "true").returncode == 1


def test_run_keeps_what_may_be_executed(sandloom: Run, tmp_path: Path) -> None:
    (tmp_path / "tool").write_text("#!/bin/sh\necho ran")
    (tmp_path / "tool").chmod(0o755)
    script = "d/tool && mkdir out && cp d/tool out/ && cp d/tool made && chmod 711 made"
    done = sandloom("run", "-i", "tool:d/tool", "-o", "made", "-o", "out", "--", "sh", "-c", script)
    assert (done.returncode, done.stdout) == (0, "ran\n"), done.stderr
    for name in ("made", "out/tool"):
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o755


def test_output_is_exact_bytes(sandloom: Run) -> None:
    done = sandloom("run", "--", "printf", r"\377\000\303\274", text=False)
    assert done.stdout == b"\xff\x00\xc3\xbc"


def test_a_program_that_is_not_there_is_127_with_its_code(sandloom: Run) -> None:
    done = sandloom("run", "--", "/no/such/program")
    assert done.returncode == 127
    assert "SANDBOX_PROGRAM_NOT_FOUND" in done.stderr


def test_a_timeout_is_124(sandloom: Run, box: Sandbox) -> None:
    done = sandloom("exec", "--timeout", "1", box.id, "--", "sleep", "60")
    assert done.returncode == 124


def test_an_interrupt_ends_the_command_too(box: Sandbox, environment: dict[str, str], tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sandloom", "exec", box.id, "--", "sh", "-c", "echo started; sleep 600"]
    with Process(command, log_path=tmp_path / "log", env=environment) as process:
        process.wait_for_output("started")
        process.send_signal(signal.SIGINT)
        assert process.wait() == 130
        process.wait_for_output("interrupted; the command was cancelled")
    (record,) = box.processes()
    assert box.process(record.exec_id).wait().status == "CANCELLED"


def test_what_runs_can_be_listed_followed_and_cancelled(sandloom: Run, box: Sandbox) -> None:
    process = box.start("echo begun; sleep 600", exec_id="long-one")
    assert next(event.text for event in process.events() if event.kind == "stdout") == "begun\n"
    (row,) = json.loads(sandloom("ps", box.id, "--json").stdout)
    assert (row["exec_id"], row["exit_code"]) == ("long-one", None)
    more = sandloom("ps", box.id, "--all")
    assert (more.returncode, more.stderr) == (2, "sandloom: only one of --all, --status and ID may be given\n")
    assert json.loads(sandloom("cancel", box.id, "long-one", "--json").stdout) == {"cancelled": True}
    assert process.wait().status == "CANCELLED"
    assert sandloom("logs", "-f", box.id, "long-one").stdout == "begun\n"
    assert sandloom("logs", box.id, "long-one").stdout == "begun\n"
    assert sandloom("cancel", box.id, "long-one").stdout == "it had ended already\n"


def test_sandboxes_that_are_released_hide_no_others(sandloom: Run, box: Sandbox, client: Client) -> None:
    gone = f"gone-{box.id}"
    client.sandbox(gone).release()

    def listed(*words: str) -> set[str]:
        return {row["sandbox_id"] for row in json.loads(sandloom("ps", "--json", *words).stdout)}

    assert listed("--limit", "300") >= {box.id}
    assert gone not in listed("--limit", "300")
    assert {box.id, gone} <= listed("--all", "--limit", "300")
    assert (box.id in listed("--status", "ready"), gone in listed("--status", "released")) == (True, True)
    one = sandloom("ps", "--all", "--limit", "1")
    assert len(one.stdout.splitlines()) == 2
    assert one.stderr == "sandloom: there are more than these 1; --limit shows more\n"


def test_a_key_is_told_what_needs_the_operator_s_token(
    sandloom: Run, client: Client, environment: dict[str, str]
) -> None:
    with_key = {**environment, "SANDBOX_API_KEY": client.tenant.create_key("cli").key}
    for words in (("key", "list"), ("usage", "--all-tenants"), ("ps",)):
        tenant = {"SANDBOX_TENANT": "other"} if words == ("ps",) else {}
        done = sandloom(*words, env=with_key | tenant)
        assert done.returncode == 1
        assert done.stderr.startswith("sandloom: NOT_FOUND: ")
        assert "need the operator's token in SANDBOX_INTERNAL_TOKEN" in done.stderr


def test_files_are_listed_shown_and_copied(sandloom: Run, box: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"\x00data")
    assert sandloom("cp", "a", f"{box.id}:/workspace/").returncode == 0
    assert [row["name"] for row in json.loads(sandloom("ls", box.id, "--json").stdout)] == ["a"]
    assert sandloom("ls", f"{box.id}:/workspace").stdout.splitlines()[1].endswith(" a")
    assert sandloom("cat", f"{box.id}:/workspace/a", text=False).stdout == b"\x00data"
    assert sandloom("cp", f"{box.id}:/workspace/a", "b").returncode == 0
    assert (tmp_path / "b").read_bytes() == b"\x00data"
    assert sandloom("cp", "a", "b").returncode == 2
    (tmp_path / "tree" / "inner").mkdir(parents=True)
    (tmp_path / "tree" / "inner" / "f").write_text("deep")
    assert sandloom("cp", "tree", f"{box.id}:/workspace/").returncode == 0
    assert box.files.read("/workspace/tree/inner/f") == b"deep"
    assert sandloom("cp", f"{box.id}:/workspace/tree", "back").returncode == 0
    assert (tmp_path / "back" / "inner" / "f").read_text() == "deep"
    again = sandloom("cp", f"{box.id}:/workspace/tree", ".")
    assert (again.returncode, "exists already" in again.stderr) == (2, True)


def test_a_copy_goes_into_a_directory_that_exists_and_takes_its_permissions_along(
    sandloom: Run, box: Sandbox, tmp_path: Path
) -> None:
    box.files.mkdir("/workspace/there")
    for name in ("here", "tree"):
        (tmp_path / name).mkdir()
    (tmp_path / "tree" / "f").write_text("#!/bin/sh\necho ran")
    (tmp_path / "tree" / "f").chmod(0o755)
    for source in ("tree", "tree/f", "tree/."):
        assert sandloom("cp", source, f"{box.id}:/workspace/there").returncode == 0
    assert {entry.name for entry in box.files.list("/workspace/there")} == {"tree", "f"}
    assert box.run("there/tree/f && there/f").stdout == "ran\nran\n"
    assert sandloom("cp", "tree", f"{box.id}:/workspace/new/").returncode == 0
    assert box.files.exists("/workspace/new/f")
    for source in ("there/tree", "there/f"):
        assert sandloom("cp", f"{box.id}:/workspace/{source}", "here").returncode == 0
    for name in ("tree/f", "f"):
        assert (tmp_path / "here" / name).stat().st_mode & 0o777 == 0o755
    assert sandloom("cp", f"{box.id}:/workspace/there/f", "missing/").returncode == 2


def test_errors_are_one_line_with_the_service_s_code(sandloom: Run, box: Sandbox, environment: dict[str, str]) -> None:
    done = sandloom("cat", f"{box.id}:/workspace/nothing")
    assert done.returncode == 1
    assert done.stderr.startswith("sandloom: SANDBOX_FILE_NOT_FOUND: ")
    assert len(done.stderr.splitlines()) == 1
    assert "SANDBOX_NOT_FOUND" in sandloom("ps", "never-made").stderr
    refused = sandloom("ps", env={**environment, "SANDBOX_API_KEY": "s3cret"}).stderr
    assert refused.startswith("sandloom: UNAUTHORIZED: the service does not take the token of SANDBOX_API_KEY;")


def test_faults_of_local_files_are_said_before_a_sandbox_is_made(sandloom: Run, client: Client, tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    for words in (("-i", "tree"), ("-i", "missing"), ("-o", "tree")):
        assert sandloom("run", "--id", "not-made", *words, "true").returncode == 2
    with pytest.raises(SandboxNotFound):
        client.attach("not-made")


def test_a_copy_to_or_from_nowhere_says_what_is_missing(sandloom: Run, box: Sandbox, tmp_path: Path) -> None:
    box.run("mkdir -p d; echo 1 > d/f").check()
    for source in ("d", "d/f"):
        done = sandloom("cp", f"{box.id}:/workspace/{source}", "missing/f")
        assert (done.returncode, done.stderr) == (2, "sandloom: missing: no local directory for f; make it first\n")
    done = sandloom("cp", "missing", f"{box.id}:/workspace/f")
    assert (done.returncode, done.stderr) == (2, "sandloom: missing: No such file or directory\n")
    (tmp_path / "f").write_text("")
    done = sandloom("cp", "f", f"{box.id}:/workspace/a b/f")
    assert done.stderr.startswith("sandloom: SANDBOX_FILE_NOT_FOUND: ")
    assert done.stderr.endswith(f"sandloom exec {box.id} mkdir -p '/workspace/a b'\n")
    assert "is written ID:/workspace/" in sandloom("ls", f"{box.id}:f").stderr


def test_all_names_are_gone_through(sandloom: Run, client: Client) -> None:
    client.sandbox("goes-too")
    done = sandloom("release", "never-made", "goes-too", "--json")
    assert done.returncode == 1
    assert done.stderr.startswith("sandloom: SANDBOX_NOT_FOUND: never-made: ")
    assert json.loads(done.stdout) == [{"sandbox_id": "goes-too", "status": "RELEASED"}]


def test_a_sandbox_is_resolved_and_released(sandloom: Run) -> None:
    route = json.loads(sandloom("resolve", "by-hand", "--json").stdout)
    assert (route["status"], route["workspace"]) == ("READY", "new")
    assert json.loads(sandloom("release", "by-hand", "--json").stdout)[0]["status"] == "RELEASED"


def test_the_audit_tells_the_lives_of_a_sandbox(sandloom: Run, client: Client) -> None:
    client.sandbox("audited").release()
    found = json.loads(sandloom("audit", "audited", "--json").stdout)
    assert (found["sandbox_id"], found["status"], len(found["history"])) == ("audited", "RELEASED", 1)
    shown = sandloom("audit", "audited").stdout
    assert "lifecycle_count" in shown
    assert shown.splitlines()[-1].split()[0] == "1"


def test_run_mounts_templates(sandloom: Run, box: Sandbox, client: Client) -> None:
    box.run("mkdir /envs/seen; echo 42 > /envs/seen/answer").check()
    box.publish_template("seen", "/envs/seen")
    try:
        done = sandloom("run", "--template", "seen", "--", "cat", "/envs/seen/answer")
        assert (done.returncode, done.stdout) == (0, "42\n"), done.stderr
    finally:
        client.unpublish_template("seen")


def test_names_that_would_change_a_terminal_are_escaped(sandloom: Run, box: Sandbox) -> None:
    box.run(["touch", "a\x1b[2Jb\nc"]).check()
    (row,) = sandloom("ls", box.id).stdout.splitlines()[1:]
    assert row.endswith(r"a\x1b[2Jb\nc")


def test_a_shell_completes_commands_options_and_sandboxes(
    sandloom: Run, box: Sandbox, environment: dict[str, str]
) -> None:
    def complete(words: str) -> list[str]:
        asked = {"_SANDLOOM_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
        done = sandloom(env=environment | asked)
        assert done.stderr == ""
        return [line.removeprefix("plain,") for line in done.stdout.splitlines()]

    assert complete("sandloom batch run --conc") == ["--concurrency"]
    assert complete(f"sandloom exec {box.id[:-3]}") == [box.id]
    assert "_SANDLOOM_COMPLETE" in sandloom("completion", "bash").stdout
