"""Limits end or bound a command, and the verdict names the limit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sandloom.execution.spec import LaunchFault, Reason
from tests.isolation.kit import with_enough_time

pytestmark = pytest.mark.bwrap


def with_limits(sandbox, **changes):
    return {"limits": replace(sandbox.template.limits, **changes)}


def test_cpu_time_used_up_is_named(sandbox):
    ran = sandbox.run("python3", "-c", "while True: pass", **with_limits(sandbox, cpu_seconds=1))
    assert (ran.verdict.reason, ran.verdict.signal) == (Reason.CPU_LIMIT, 24)
    assert ran.verdict.usage.cpu_ms >= 500


def test_cpu_time_used_up_by_one_who_ignores_the_warning(sandbox):
    script = "import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass"
    ran = sandbox.python(script, **with_limits(sandbox, cpu_seconds=1))
    assert (ran.verdict.reason, ran.verdict.signal) == (Reason.CPU_LIMIT, 9)


def test_a_file_that_grows_too_large_is_named(sandbox):
    ran = sandbox.shell("exec head -c 3000000 /dev/zero > big", **with_limits(sandbox, max_file_size_bytes=1 << 20))
    assert (ran.verdict.reason, ran.verdict.signal) == (Reason.FILE_SIZE, 25)
    assert (sandbox.workspace / "big").stat().st_size == 1 << 20


@pytest.mark.parametrize("place", ["/tmp", "/dev/shm"])
def test_memory_file_systems_are_sized(sandbox, place):
    size = 2 << 20
    ran = sandbox.shell(
        f"head -c {4 * size} /dev/zero > {place}/big; stat -c %s {place}/big",
        **with_limits(sandbox, tmpfs_bytes=size, shm_bytes=size),
    )
    assert int(ran.text) == size
    assert b"No space left" in ran.stderr


def test_open_files_are_bounded(sandbox):
    ran = sandbox.python(
        "import os\nfds = []\ntry:\n    while True: fds.append(os.dup(0))\nexcept OSError: print(len(fds))",
        **with_limits(sandbox, max_open_files=64),
    )
    assert int(ran.text) <= 61


def test_no_core_file_is_left(sandbox):
    ran = sandbox.shell("ulimit -c; ulimit -H -c; kill -SEGV $$")
    assert ran.verdict.signal == 11
    assert list(sandbox.workspace.iterdir()) == []


def test_limits_cannot_be_raised(sandbox):
    ran = sandbox.python(
        "import resource\n"
        "for name in (resource.RLIMIT_NOFILE, resource.RLIMIT_CPU, resource.RLIMIT_FSIZE, resource.RLIMIT_CORE):\n"
        "    hard = resource.getrlimit(name)[1]\n"
        "    try: resource.setrlimit(name, (hard + 1, hard + 1))\n"
        "    except (ValueError, PermissionError): print('refused')\n"
    )
    assert ran.text.split() == ["refused"] * 4


def test_output_without_end_is_cut_and_bounded(sandbox):
    def attempt(seconds: float) -> bool:
        ran = sandbox.run("yes", max_output_bytes=100_000, timeout_seconds=seconds)
        assert ran.verdict.reason is Reason.TIMEOUT
        assert len(ran.stdout) <= 100_000
        return len(ran.stdout) == 100_000 and ran.verdict.truncated

    with_enough_time(attempt)


def test_large_arguments_and_environment_arrive(sandbox):
    ran = sandbox.shell("echo ${#1} ${#BIG}", env={"BIG": "x" * 60_000})
    assert ran.text == "0 60000"
    words = ["y" * 60_000] * 20
    ran = sandbox.run("/bin/sh", "-c", "echo $#", "sh", *words)
    assert ran.text == "20"


def test_arguments_beyond_what_the_kernel_takes_are_named(sandbox):
    ran = sandbox.run("true", "x" * 200_000)
    assert (ran.verdict.reason, ran.verdict.error) == (Reason.NOT_STARTED, LaunchFault.ARGUMENTS_TOO_LONG)


def test_arguments_that_are_not_text_arrive_exactly(sandbox):
    ran = sandbox.run("printf", "%s", "caf\udce9\u2603\n\x01")
    assert ran.stdout == b"caf\xe9\xe2\x98\x83\n\x01"


def test_usage_is_measured(sandbox):
    script = (
        "x = bytearray(60 << 20)\nimport time\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass"
    )
    usage = sandbox.python(script).verdict.usage
    assert usage.cpu_ms >= 250
    assert usage.max_rss_bytes >= 60 << 20
    small = sandbox.run("true").verdict
    assert small.usage.max_rss_bytes < 30 << 20
    assert small.duration_ms >= 1
