from __future__ import annotations

import os
import select
import signal
import sys
from pathlib import Path

import pytest

from tests.services.process import NotReady, Process, base_environment


def python(code: str, tmp_path: Path, **options) -> Process:
    return Process([sys.executable, "-u", "-c", code], log_path=tmp_path / "log", **options)


def test_output_is_awaited_and_kept_in_a_file(tmp_path):
    with python("print('ready: 7'); import sys; print('bad', file=sys.stderr); sys.stdin.read()", tmp_path) as process:
        assert process.wait_for_output(r"ready: (\d+)").group(1) == b"7"
        process.wait_for_output("bad\n")
    assert (tmp_path / "log").read_text() == "ready: 7\nbad\n"


def test_a_mark_hides_what_came_before(tmp_path):
    with python("print('one'); import time; time.sleep(60)", tmp_path) as process:
        process.wait_for_output("one")
        with pytest.raises(NotReady):
            process.wait_for_output("one", after=process.mark(), timeout_seconds=0.05)


def test_the_end_of_the_process_ends_the_wait_and_shows_the_log(tmp_path):
    with python("raise SystemExit('no such port')", tmp_path) as process, pytest.raises(NotReady, match="no such port"):
        process.wait_for_output("ready", timeout_seconds=60)
    assert process.returncode == 1


def test_stop_ends_a_stopped_process_and_its_group(tmp_path):
    code = "import os, time; child = os.fork(); child and print('child', child); time.sleep(600)"
    process = python(code, tmp_path)
    child = int(process.wait_for_output(r"child (\d+)\n").group(1))
    descriptor = os.pidfd_open(child)
    process.send_signal(signal.SIGSTOP)
    assert process.stop() == -signal.SIGTERM
    assert select.select([descriptor], [], [], 60)[0], "a member of the group lives"
    os.close(descriptor)


def test_the_environment_is_what_was_given(tmp_path, monkeypatch):
    monkeypatch.setenv("SANDBOX_PORT", "1")
    with python("import os; print(sorted(n for n in os.environ if n.startswith('SANDBOX')))", tmp_path) as process:
        process.wait_for_output(r"\]\n")
    assert process.output() == "[]\n"
    assert base_environment(SANDBOX_PORT="2")["SANDBOX_PORT"] == "2"
