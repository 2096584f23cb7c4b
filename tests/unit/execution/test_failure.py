"""Every way a command can end, as the facts that the spawner reports."""

from __future__ import annotations

import pytest

from sandloom.execution import failure
from sandloom.execution.spec import GroupFacts, LaunchFault, Reason, Verdict

EXITED_1 = 1 << 8
KILLED = 9


def judge(
    stderr: bytes = b"", *, argv0: str = "prog", cwd: str = "/workspace", group: GroupFacts | None = None, **facts
) -> Verdict:
    merged = {"cause": None, "exit_code": None, "status": EXITED_1, "launch_error": None, "set_up": None, **facts}
    return failure.judge(merged, argv0=argv0, cwd=cwd, cpu_seconds=10, stderr_head=stderr, group=group)


OOM = GroupFacts(memory_peak_bytes=70, pids_peak=4, oom_kills=1, memory_bound="memory budget of 64 bytes reached")
FULL = GroupFacts(pids_peak=9, refused_forks=3, pids_bound="process budget of 9 reached")


@pytest.mark.parametrize(
    ("facts", "shown_as"),
    [
        ({"exit_code": 137}, (Reason.OOM, 137, 9, None)),
        ({"exit_code": 1}, (Reason.OOM, 1, None, None)),
        # The kernel chose the outer bwrap, or the one inside, before or after the program ran.
        ({"status": KILLED}, (Reason.OOM, 137, 9, None)),
        ({"status": EXITED_1}, (Reason.OOM, 137, 9, None)),
        ({"status": KILLED, "set_up": False}, (Reason.OOM, 137, 9, None)),
        # Whoever coped with it, and whoever was ended for another reason, did not fail because of it.
        ({"exit_code": 0}, (Reason.EXIT, 0, None, None)),
        ({"cause": "timeout", "status": KILLED}, (Reason.TIMEOUT, 137, 9, None)),
    ],
)
def test_out_of_memory_is_named_with_its_numbers(facts, shown_as):
    verdict = judge(group=OOM, max_rss_bytes=5, **facts)
    assert shown(verdict) == shown_as
    assert (verdict.detail == OOM.memory_bound) is (verdict.reason is Reason.OOM)
    usage = verdict.usage
    assert (usage.oom_killed, usage.max_rss_bytes, usage.pids_peak) == (True, 70, 4)


def test_processes_that_could_not_be_made():
    assert shown(judge(group=FULL, exit_code=2)) == (Reason.PIDS, 2, None, None)
    assert judge(group=FULL, exit_code=2).detail == FULL.pids_bound
    assert judge(group=FULL, exit_code=0).reason is Reason.EXIT
    refused = judge(b"bwrap: Can't fork for pid 1: Resource temporarily unavailable\n", group=FULL)
    assert shown(refused) == (Reason.NOT_STARTED, None, None, LaunchFault.PROCESS_LIMIT)
    assert refused.detail == FULL.pids_bound
    assert judge(group=FULL, exit_code=2, max_rss_bytes=5).usage.max_rss_bytes == 5


def test_memory_comes_before_processes():
    both = GroupFacts(oom_kills=1, refused_forks=1, memory_bound="m", pids_bound="p")
    assert (judge(group=both, exit_code=1).reason, judge(group=both, exit_code=1).detail) == (Reason.OOM, "m")


def test_a_disk_that_is_full_is_named_where_the_command_failed_of_it():
    said = "disk budget of 9 bytes reached: 10 in use"

    def at_the_bound(**facts):
        merged = {"cause": None, "exit_code": None, "status": EXITED_1, **facts}
        return failure.judge(merged, argv0="a", cwd="/", cpu_seconds=10, stderr_head=b"", disk_reached=said)

    assert shown(at_the_bound(cause="cancelled", status=KILLED)) == (Reason.DISK, 137, 9, None)
    assert shown(at_the_bound(exit_code=1)) == (Reason.DISK, 1, None, None)
    assert at_the_bound(exit_code=1).detail == said
    assert at_the_bound(exit_code=0).reason is Reason.EXIT
    assert at_the_bound(cause="timeout", status=KILLED).reason is Reason.TIMEOUT


def shown(verdict: Verdict):
    return verdict.reason, verdict.exit_code, verdict.signal, verdict.error


@pytest.mark.parametrize("code", [0, 1, 2, 126, 127, 128, 255])
def test_an_exit_code_is_the_commands_own_whatever_it_wrote(code):
    verdict = judge(b"bwrap: execvp prog: No such file or directory\n", exit_code=code)
    assert shown(verdict) == (Reason.EXIT, code, None, None)


@pytest.mark.parametrize(
    ("code", "cpu_ms", "reason"),
    [
        (139, 0, Reason.SIGNAL),
        (137, 0, Reason.SIGNAL),
        (137, 10_000, Reason.CPU_LIMIT),
        (152, 0, Reason.CPU_LIMIT),
        (153, 0, Reason.FILE_SIZE),
    ],
)
def test_signals_and_limits(code, cpu_ms, reason):
    assert shown(judge(exit_code=code, cpu_ms=cpu_ms)) == (reason, code, code - 128, None)


@pytest.mark.parametrize(
    ("cause", "reason"),
    [
        ("timeout", Reason.TIMEOUT),
        ("cancelled", Reason.CANCELLED),
        ("lease", Reason.WORKER_LOST),
        ("abandoned", Reason.WORKER_LOST),
    ],
)
def test_what_the_engine_ended_has_its_cause(cause, reason):
    assert shown(judge(cause=cause, status=KILLED)) == (reason, 137, 9, None)
    assert shown(judge(cause=cause, exit_code=143)) == (reason, 143, 15, None)
    assert shown(judge(cause=cause, exit_code=0)) == (reason, 0, None, None)
    assert shown(judge(cause=cause, launch_error="refused", status=None)) == (reason, None, None, None)


@pytest.mark.parametrize(
    ("text", "fault", "code"),
    [
        ("No such file or directory", LaunchFault.PROGRAM_NOT_FOUND, 127),
        ("Not a directory", LaunchFault.PROGRAM_NOT_FOUND, 127),
        ("Permission denied", LaunchFault.PROGRAM_NOT_EXECUTABLE, 126),
        ("Exec format error", LaunchFault.PROGRAM_NOT_EXECUTABLE, 126),
        ("Too many levels of symbolic links", LaunchFault.PROGRAM_NOT_EXECUTABLE, 126),
        ("something new", LaunchFault.PROGRAM_NOT_EXECUTABLE, 126),
        ("Argument list too long", LaunchFault.ARGUMENTS_TOO_LONG, None),
        ("Resource temporarily unavailable", LaunchFault.PROCESS_LIMIT, None),
    ],
)
@pytest.mark.parametrize("set_up", [None, True])
def test_a_program_that_never_ran(text, fault, code, set_up):
    verdict = judge(f"bwrap: execvp prog: {text}\n".encode(), set_up=set_up)
    assert shown(verdict) == (Reason.NOT_STARTED, code, None, fault)


def test_a_name_longer_than_a_path_can_be():
    name = "x" * 60_000
    verdict = judge(f"bwrap: execvp {name}"[:16_384].encode(), argv0=name)
    assert shown(verdict) == (Reason.NOT_STARTED, 127, None, LaunchFault.PROGRAM_NOT_FOUND)


def test_a_name_that_looks_like_an_answer():
    name = "a: Permission denied\nbwrap: execvp b"
    verdict = judge(f"bwrap: execvp {name}: No such file or directory\n".encode(), argv0=name)
    assert verdict.error is LaunchFault.PROGRAM_NOT_FOUND


def test_a_directory_that_cannot_be_entered():
    verdict = judge(b"bwrap: Can't chdir to /workspace/x: Permission denied\n", cwd="/workspace/x")
    assert shown(verdict) == (Reason.NOT_STARTED, None, None, LaunchFault.CWD_UNAVAILABLE)
    assert verdict.detail == "/workspace/x: Permission denied"


@pytest.mark.parametrize("set_up", [None, False])
def test_the_sandbox_itself_failed(set_up):
    verdict = judge(b"bwrap: Can't mount proc on /newroot/proc: Operation not permitted\n", set_up=set_up)
    assert shown(verdict) == (Reason.NOT_STARTED, None, None, LaunchFault.ISOLATION_FAILED)
    assert verdict.detail == "bwrap: Can't mount proc on /newroot/proc: Operation not permitted"


def test_a_full_sandbox():
    verdict = judge(b"bwrap: Creating new namespace failed: Resource temporarily unavailable\n", set_up=False)
    assert verdict.error is LaunchFault.PROCESS_LIMIT
    assert judge(launch_error="BlockingIOError", errno=11).error is LaunchFault.PROCESS_LIMIT


def test_a_monitor_killed_before_the_set_up_was_done_is_the_sandboxs_failure():
    assert judge(status=KILLED, set_up=False).error is LaunchFault.ISOLATION_FAILED


def test_a_monitor_killed_later_is_the_commands_end():
    assert shown(judge(b"bwrap: any text", status=KILLED, set_up=True)) == (Reason.SIGNAL, 137, 9, None)


def test_before_bwrap():
    assert judge(launch_error="OSError: x", errno=7).error is LaunchFault.ARGUMENTS_TOO_LONG
    verdict = judge(launch_error="PermissionError: setresuid", errno=1)
    assert (verdict.error, verdict.detail) == (LaunchFault.ISOLATION_FAILED, "PermissionError: setresuid")


def test_usage_is_passed_on():
    verdict = judge(exit_code=0, cpu_ms=5, max_rss_bytes=4096, io_bytes=512, duration_ms=7)
    assert (verdict.usage.cpu_ms, verdict.usage.max_rss_bytes, verdict.usage.io_bytes) == (5, 4096, 512)
    assert verdict.duration_ms == 7
