"""Ending what is left, by uid or by what it mounted."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from sandloom.execution.locks import UidBlock
from sandloom.execution.reap import kill_bwraps_of, kill_uid_range

STUBBORN = (
    "import os, signal, sys, time\n"
    "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "os.setgroups([]); os.setresgid({0}, {0}, {0}); os.setresuid({0}, {0}, {0})\n"
    "child = os.fork()\n"
    "print('ready' if child else '', flush=True)\n"
    "os.kill(os.getpid(), signal.SIGSTOP)\n"
    "time.sleep(300)\n"
)


@pytest.mark.root
def test_every_process_of_the_range_ends_and_no_other():
    with UidBlock.acquire(60_100, 64_099, 4, None, _locks()) as block:
        processes = [
            subprocess.Popen([sys.executable, "-c", STUBBORN.format(uid)], stdout=subprocess.PIPE)
            for uid in (block.start, block.start + 1, block.end)
        ]
        for process in processes:
            assert process.stdout is not None
            while process.stdout.readline() != b"ready\n":
                pass
        assert kill_uid_range(block.start, block.start + 1) == 4
        assert [process.wait() for process in processes[:2]] == [-signal.SIGKILL] * 2
        assert processes[2].poll() is None
        assert kill_uid_range(block.start, block.end) == 2
        assert processes[2].wait() == -signal.SIGKILL
        assert kill_uid_range(block.start, block.end) == 0
        for process in processes:
            assert process.stdout is not None
            process.stdout.close()


def _locks():
    from pathlib import Path

    return Path("/run/sandloom-tests")


@pytest.mark.parametrize(("start", "end"), [(0, 5), (-1, 5), (6, 5)])
def test_a_range_with_root_in_it_is_refused(start, end):
    with pytest.raises(ValueError):
        kill_uid_range(start, end)


def test_a_bwrap_is_found_by_what_it_binds(tmp_path):
    fake = tmp_path / "bwrap"
    fake.symlink_to("/bin/sh")

    def start(bound: str) -> subprocess.Popen[bytes]:
        options = ["--json-status-fd", "3", "--bind", bound, "/workspace", "--", "true"]
        argv = [str(fake), "-c", "echo up; read line", *options]
        process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        # Only then its command line is that of the program for certain.
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        return process

    mine, other = start(f"{tmp_path}/sandboxes/a"), start("/elsewhere")
    assert kill_bwraps_of(str(tmp_path / "sandboxes")) == 1
    assert mine.wait() == -signal.SIGKILL
    assert other.poll() is None
    other.communicate(b"\n")
    mine.communicate()
