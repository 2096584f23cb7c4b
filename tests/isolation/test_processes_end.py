"""Whatever a command does to its processes, none is alive after its verdict."""

from __future__ import annotations

import os

import pytest

from sandloom.execution.spec import Reason
from tests.isolation.kit import with_enough_time

pytestmark = pytest.mark.bwrap

# Each prints "ready" when its trick is done, and then would live for minutes.
TRICKS = {
    "setsid": "setsid sleep 300 & echo ready; wait",
    "double_fork": "(setsid sh -c 'sleep 300 & sleep 300' &) ; echo ready; sleep 300",
    "ignores_term": "trap '' TERM HUP INT; echo ready; while :; do sleep 300; done",
    "ignores_term_in_a_grandchild": "(trap '' TERM; setsid sleep 300 &); echo ready; sleep 300",
    "stops_itself": "(sleep 0.2; echo ready) & kill -STOP $$",
    "stops_a_grandchild": "(setsid sh -c 'kill -STOP $$; sleep 300' &); echo ready; sleep 300",
    "closes_its_pipes": "echo ready; exec >&- 2>&- <&-; sleep 300",
    "holds_the_pipe_in_a_grandchild": "(setsid sleep 300 &); echo ready; sleep 300",
    "nohup": "nohup sleep 300 >/dev/null 2>&1 & echo ready; wait",
}
PYTHON_TRICKS = {
    "subreaper_of_its_own": """
import ctypes, os, time
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
for _ in range(5):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(300)
        os._exit(0)
print("ready", flush=True)
time.sleep(300)
""",
    "signals_everything_it_can_reach": """
import os, signal, time
for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGCHLD, signal.SIGCONT):
    signal.signal(number, signal.SIG_IGN)
for pid in (1, os.getppid(), -os.getpgrp()):
    for number in (signal.SIGCONT, signal.SIGCHLD, signal.SIGTERM if pid != os.getppid() else 0):
        try:
            os.kill(pid, number)
        except OSError:
            pass
print("ready", flush=True)
time.sleep(300)
""",
    "threads_and_processes": """
import multiprocessing, threading, time
for _ in range(8):
    threading.Thread(target=time.sleep, args=(300,)).start()
for _ in range(4):
    multiprocessing.Process(target=time.sleep, args=(300,)).start()
print("ready", flush=True)
""",
    "a_chain_that_moves_on": """
import os, time
print("ready", flush=True)
while True:
    if os.fork():
        os._exit(0) if os.getpid() != FIRST else time.sleep(300)
    os.setsid()
    time.sleep(0.001)
""".replace("import os, time\n", "import os, time\nFIRST = os.getpid()\n"),
}
ALL = [("sh", name) for name in TRICKS] + [("python", name) for name in PYTHON_TRICKS]


def begin(sandbox, kind, name, **changes):
    if kind == "sh":
        return sandbox.begin_shell(TRICKS[name], **changes)
    return sandbox.begin_python(PYTHON_TRICKS[name], **changes)


@pytest.mark.parametrize(("kind", "name"), ALL, ids=[name for _, name in ALL])
def test_cancel_leaves_no_process(sandbox, kind, name):
    running = begin(sandbox, kind, name)
    running.see("ready")
    assert sandbox.processes() != []
    running.handle.cancel()
    assert running.end().reason is Reason.CANCELLED
    assert sandbox.processes() == []


@pytest.mark.parametrize(("kind", "name"), ALL, ids=[name for _, name in ALL])
def test_timeout_leaves_no_process_and_keeps_output(sandbox, kind, name):
    def attempt(seconds: float) -> bool:
        running = begin(sandbox, kind, name, timeout_seconds=seconds)
        assert running.end().reason is Reason.TIMEOUT
        assert sandbox.processes() == []
        return b"ready" in running.output

    with_enough_time(attempt)


@pytest.mark.parametrize(
    "script",
    [
        "(setsid sleep 300 &); exit 7",
        "sleep 300 & exit 7",
        "(trap '' TERM; setsid sleep 300 &); exit 7",
        "setsid sh -c 'setsid sleep 300 & kill -STOP $$' & exit 7",
    ],
)
def test_what_a_finished_command_left_ends_with_it(sandbox, script):
    verdict = sandbox.shell(script).verdict
    assert (verdict.reason, verdict.exit_code) == (Reason.EXIT, 7)
    assert sandbox.processes() == []


def test_a_fork_storm_is_bounded_and_ends(sandbox):
    if not sandbox.template.plan.uid_separation:
        pytest.skip("without root there is no limit of its own for a sandbox's processes")
    storm = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
while True:
    try:
        if os.fork() == 0:
            os.setsid()
    except OSError:
        time.sleep(0.001)
"""
    running = sandbox.begin_python(storm)
    running.see("ready")
    assert len(sandbox.processes()) <= 2 * sandbox.template.limits.max_processes
    running.handle.cancel()
    assert running.end().reason is Reason.CANCELLED
    assert sandbox.processes() == []


def test_a_sandbox_full_of_processes_says_so(sandbox):
    if not sandbox.template.plan.uid_separation:
        pytest.skip("without root there is no limit of its own for a sandbox's processes")
    full = """
import os, time
try:
    while True:
        if os.fork() == 0:
            time.sleep(300)
except OSError:
    print("ready", flush=True)
time.sleep(300)
"""
    running = sandbox.begin_python(full)
    running.see("ready")
    verdict = sandbox.run("true").verdict
    assert (verdict.reason, str(verdict.error)) == (Reason.NOT_STARTED, "process_limit"), verdict
    running.handle.cancel()
    running.end()
    assert sandbox.run("true").verdict.exit_code == 0


def test_cancel_while_it_is_being_set_up(sandbox):
    for _ in range(20):
        running = sandbox.begin("sleep", "300")
        running.handle.cancel()
        assert running.end().reason is Reason.CANCELLED
    assert sandbox.processes() == []


def test_cancelling_twice_and_after_the_end_is_harmless(sandbox):
    running = sandbox.begin("sleep", "300")
    running.handle.cancel()
    running.handle.cancel()
    verdict = running.end()
    running.handle.cancel()
    assert running.handle.wait() == verdict


def test_killing_everything_it_can_see_is_only_its_own_end(sandbox):
    attack = """
import os, signal
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGSTOP, signal.SIGKILL):
    try:
        os.kill(1, number)
    except OSError:
        pass
os.kill(os.getppid(), signal.SIGKILL) if os.getppid() > 1 else None
os.kill(-1, signal.SIGKILL)
"""
    running = sandbox.begin_python(attack, timeout_seconds=20)
    verdict = running.end()
    assert verdict.reason in (Reason.SIGNAL, Reason.EXIT), verdict
    assert verdict.error is None
    assert sandbox.processes() == []
    assert sandbox.run("true").verdict.exit_code == 0


def test_commands_side_by_side_do_not_end_each_other(sandbox):
    survivor = sandbox.begin_shell("echo ready; sleep 300")
    survivor.see("ready")
    victims = [sandbox.begin_shell("echo ready; (setsid sleep 300 &); sleep 300") for _ in range(4)]
    for victim in victims:
        victim.see("ready")
        victim.handle.cancel()
    assert {victim.end().reason for victim in victims} == {Reason.CANCELLED}
    assert survivor.verdict is None
    assert sandbox.processes() != []
    survivor.handle.cancel()
    survivor.end()


def test_a_pipe_held_by_another_command_cannot_hang_the_verdict(sandbox):
    keep = """
import array, socket, time
server = socket.socket(socket.AF_UNIX); server.bind("/workspace/s"); server.listen()
print("ready", flush=True)
peer, _ = server.accept()
_, fds, _, _ = socket.recv_fds(peer, 1, 4)
print("kept", fds, flush=True)
time.sleep(300)
"""
    give = """
import socket
peer = socket.socket(socket.AF_UNIX); peer.connect("/workspace/s")
print("given", flush=True)
socket.send_fds(peer, [b"x"], [1, 2])
"""
    keeper = sandbox.begin_python(keep)
    keeper.see("ready")
    giver = sandbox.begin_python(give)
    verdict = giver.end()
    assert (verdict.reason, giver.output) == (Reason.EXIT, b"given\n")
    keeper.see("kept")
    keeper.handle.cancel()
    keeper.end()


def test_the_first_cause_is_the_reason(sandbox):
    running = sandbox.begin_shell("trap '' TERM; echo ready; while :; do sleep 300; done", terminate_grace_seconds=1)
    running.see("ready")
    running.handle.cancel()
    verdict = running.end()
    assert (verdict.reason, verdict.signal, verdict.exit_code) == (Reason.CANCELLED, 9, 137)


TRACER = r"""
import ctypes, os, signal, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
libc.ptrace.restype = ctypes.c_long
monitor = os.getppid()
print("ready", flush=True)
if libc.ptrace(16, monitor, None, None) != 0:
    print("refused", flush=True)
    sys.exit(5)
os.waitpid(monitor, 0x40000000)
print("attached", flush=True)
registers = (ctypes.c_ulonglong * 27)()
libc.ptrace(12, monitor, None, ctypes.byref(registers))
text = b'{ "launch_error": "forged", "exit-code": [[[, "keeper": 1, "child-pid": "x" }\n{ "launch_error": "forged" }\n'
area = registers[19] - 4096
padded = text + b"\0" * (-len(text) % 8)
for at in range(0, len(padded), 8):
    libc.ptrace(4, monitor, area + at, struct.unpack("<Q", padded[at : at + 8])[0])
def call(number, *arguments):
    registers[10], registers[15] = number, -1 & (2**64 - 1)
    for place, value in zip((14, 13, 12), arguments):
        registers[place] = value
    registers[16] = syscall_at
    libc.ptrace(13, monitor, None, ctypes.byref(registers))
    libc.ptrace(9, monitor, None, None)
    os.waitpid(monitor, 0x40000000)
syscall_at = registers[16] - 2
call(1, 3, area, len(text))
call(60, 1)
print("forged", flush=True)
os._exit(6)
"""


def test_a_command_that_traces_its_monitor_can_only_describe_its_own_end(sandbox):
    if os.uname().machine != "x86_64":
        pytest.skip("the tracer is written for x86_64")
    running = sandbox.begin_python(TRACER, timeout_seconds=20)
    verdict = running.end()
    assert b"ready" in running.output, running.output
    assert verdict.reason in (Reason.EXIT, Reason.SIGNAL, Reason.NOT_STARTED), verdict
    assert str(verdict.error) not in ("isolation_failed", "process_limit", "spawner_lost"), (verdict, running.output)
    assert sandbox.processes() == []
    assert sandbox.run("true").verdict.exit_code == 0
