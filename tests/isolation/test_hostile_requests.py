"""Attacks by what is asked for, not by the program that runs: a working directory, words, a crash, traps in files."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
from contextlib import contextmanager
from pathlib import Path

import pytest

from sandloom.execution.spec import LaunchFault, Reason
from tests.isolation.kit import eventually, next_uid

pytestmark = pytest.mark.bwrap

CORE_PATTERN = Path("/proc/sys/kernel/core_pattern")


def test_no_descriptor_of_bwrap_is_a_working_directory_outside(sandbox, state_dir):
    """As CVE-2024-21626: a descriptor that leads outside is closed at the exec only, but the directory stays."""
    outside = state_dir / "outside-of-all"
    outside.write_text("outside")
    outside.chmod(0o644)
    way = f"cat ../../../../..{outside}"
    for fd in range(3, 12):
        for tail in ("", "/..", "/../../.."):
            ran = sandbox.shell(way, cwd=f"/proc/self/fd/{fd}{tail}")
            assert ran.text == ""
            assert ran.verdict.exit_code != 0 or ran.verdict.error is not None
            sandbox.shell(f"ln -sfn /proc/self/fd/{fd}{tail} way-out")
            assert sandbox.shell(way, cwd="/workspace/way-out").text == ""


def test_a_directory_below_is_entered_as_named(sandbox):
    sandbox.shell("mkdir -p 'a b/-c' real; ln -s real link; touch real/here")
    for below in ("a b", "a b/-c", "link", "real/"):
        ran = sandbox.shell("echo $PWD; env | grep -c OLDPWD", cwd=f"/workspace/{below}")
        assert ran.text.splitlines() == [f"/workspace/{below}".rstrip("/"), "0"]
    assert sandbox.run("ls", cwd="/workspace/link").text == "here"
    descriptors = "import os\nfor fd in range(3, 64):\n    try: os.fstat(fd); print(fd)\n    except OSError: pass"
    assert sandbox.python(descriptors, cwd="/workspace/real").text == ""


def test_what_fails_on_the_way_is_told_apart_and_cannot_be_claimed(sandbox):
    sandbox.shell("mkdir d; touch file")
    absent = sandbox.run("no-such-program", cwd="/workspace/d").verdict
    assert (absent.reason, absent.exit_code, absent.error) == (Reason.NOT_STARTED, 127, LaunchFault.PROGRAM_NOT_FOUND)
    for cwd in ("/workspace/absent", "/workspace/file"):
        verdict = sandbox.run("true", cwd=cwd).verdict
        assert (verdict.reason, verdict.exit_code, verdict.error) == (
            Reason.NOT_STARTED, None, LaunchFault.CWD_UNAVAILABLE,
        )  # fmt: skip
    claim = sandbox.shell("echo cwd >&5; echo program >&5; exit 1", cwd="/workspace/d").verdict
    assert (claim.reason, claim.error) == (Reason.EXIT, None)


def test_that_attack_works_on_a_bwrap_with_a_descriptor_left_open(sandbox, state_dir):
    """Or the test above would prove nothing."""
    outside = state_dir / "outside-of-all"
    outside.write_text("outside")
    links = [word for name in ("bin", "lib", "lib64") for word in ("--symlink", f"usr/{name}", f"/{name}")]
    argv = [sandbox.template.plan.bwrap, "--unshare-user", "--unshare-pid", "--ro-bind", "/usr", "/usr", *links]
    root = os.open("/", os.O_RDONLY)
    argv += ["--proc", "/proc", "--chdir", f"/proc/self/fd/{root}", "cat", f".{outside}"]
    ran = subprocess.run(argv, pass_fds=[root], capture_output=True, check=False)
    os.close(root)
    assert ran.stdout == b"outside", ran


@pytest.mark.parametrize("word", ["--bind", "--dev-bind", "--version", "--args", "--", "-c"])
def test_words_of_a_command_are_no_options_of_bwrap(sandbox, word):
    ran = sandbox.run(word, "/", "/mnt", "true")
    assert (ran.verdict.exit_code, ran.verdict.error) == (127, LaunchFault.PROGRAM_NOT_FOUND)
    assert ran.stdout == b""


@contextmanager
def core_handler(directory: Path):
    """A handler for the whole machine, for as short as can be; it notes uids of crashed processes."""
    handler, notes = directory / "core-handler", directory / "crashed"
    handler.write_text(f'#!/bin/sh\necho "$1" >> {notes}\n')
    handler.chmod(0o755)
    notes.touch()
    before = CORE_PATTERN.read_text()
    CORE_PATTERN.write_text(f"|{handler} %u\n")
    try:
        yield lambda: notes.read_text().split()
    finally:
        CORE_PATTERN.write_text(before)


@pytest.mark.root
def test_a_crash_starts_no_core_handler_of_the_host(sandbox, state_dir):
    other = next_uid()
    with core_handler(state_dir) as crashed:
        ran = sandbox.shell("ulimit -c unlimited; kill -SEGV $$")
        assert (ran.verdict.reason, ran.verdict.signal) == (Reason.SIGNAL, signal.SIGSEGV)
        subprocess.run(
            ["sh", "-c", "kill -SEGV $$"],
            user=other,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE, (1 << 20, 1 << 20)),
            check=False,
        )
        assert eventually(lambda: str(other) in crashed())
        assert str(sandbox.uid) not in crashed()
