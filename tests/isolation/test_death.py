"""The worker dies, the spawner dies, the lease lapses: no command outlives any of them."""

from __future__ import annotations

import contextlib
import os
import pickle
import random
import signal
import sys
import threading
import time
from dataclasses import replace

import pytest

from sandloom.execution.process import Spawner
from sandloom.execution.runner import Runner
from sandloom.execution.spawner import proctree, wire
from sandloom.execution.spec import LaunchFault, Reason, SpawnerUnavailable
from tests.isolation.kit import NATIVE_AND_TWIN, Sandbox, eventually, plan_for, with_enough_time
from tests.services.process import ROOT, Process, base_environment

pytestmark = [pytest.mark.bwrap, NATIVE_AND_TWIN]

STUBBORN = "trap '' TERM; (trap '' TERM; setsid sleep 300 &); echo ready; while :; do sleep 300; done"


@pytest.fixture
def mine(level, report, state_dir, own_spawner):
    """A sandbox on a spawner of its own."""
    assert report.plan is not None
    return Sandbox(state_dir, plan_for(level, report.plan), Runner(own_spawner))


def open_files(pid: int) -> set[str]:
    found = set()
    for fd in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):
            found.add(os.readlink(f"/proc/{pid}/fd/{fd}"))
    return found


def boottime_in(seconds: float) -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME) + seconds


@pytest.fixture
def start_worker(sandbox, tmp_path, native):
    """Starts a worker process with one stubborn command; gives it and the pid of its spawner."""
    started = []

    def start(lease_seconds: float = 300) -> tuple[Process, int]:
        spec_file = tmp_path / "spec"
        spec_file.write_bytes(pickle.dumps(replace(sandbox.template, argv=("/bin/sh", "-c", STUBBORN))))
        module = "tests.isolation.worker_stand_in"
        process = Process(
            [sys.executable, "-m", module, spec_file, tmp_path / "lock", str(lease_seconds), str(native)],
            log_path=tmp_path / "worker.log",
            env=base_environment(PYTHONPATH=str(ROOT)),
        )
        started.append(process)
        return process, int(process.wait_for_output(r"ready\n (\d+)\n").group(1))

    yield start
    for process in started:
        process.stop(signal.SIGKILL)


def test_a_killed_worker_takes_its_commands_along(start_worker, sandbox):
    process, spawner_pid = start_worker()
    assert sandbox.processes() != []
    process.kill()
    assert eventually(lambda: sandbox.processes() == [])
    assert eventually(lambda: proctree.read_process(spawner_pid) is None)


def test_the_spawner_keeps_the_workers_lock_until_everything_is_gone(start_worker, sandbox, tmp_path):
    process, spawner_pid = start_worker()
    assert str(tmp_path / "lock") in open_files(spawner_pid)
    process.kill()
    assert eventually(lambda: proctree.read_process(spawner_pid) is None)
    assert sandbox.processes() == []


def test_worker_and_spawner_killed_together_leave_nothing(start_worker, sandbox):
    process, spawner_pid = start_worker()
    os.kill(spawner_pid, signal.SIGSTOP)
    process.kill()
    assert sandbox.processes() != []
    os.kill(spawner_pid, signal.SIGKILL)
    assert eventually(lambda: sandbox.processes() == [])


def test_a_worker_stopped_past_its_lease_loses_its_commands(start_worker, sandbox):
    process, _ = start_worker(lease_seconds=3)
    os.kill(process.pid, signal.SIGSTOP)
    assert eventually(lambda: sandbox.processes() == [])
    os.kill(process.pid, signal.SIGCONT)
    process.wait_for_output("verdict worker_lost")


def test_signals_to_the_spawner_do_not_end_it(mine, own_spawner):
    running = mine.begin_shell("echo ready; sleep 300")
    running.see("ready")
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
        os.kill(own_spawner.pid, number)
    assert mine.shell("exit 3").verdict.exit_code == 3
    assert running.verdict is None
    running.handle.cancel()
    running.end()


def test_a_killed_spawner_ends_its_commands_and_is_replaced(mine, own_spawner):
    running = [mine.begin_shell(STUBBORN) for _ in range(3)]
    for command in running:
        command.see("ready")
    old = own_spawner.pid
    os.kill(old, signal.SIGKILL)
    for command in running:
        verdict = command.end()
        assert (verdict.reason, verdict.error) == (Reason.WORKER_LOST, LaunchFault.SPAWNER_LOST)
    assert mine.processes() == []
    assert mine.run("echo", "again").stdout == b"again\n"
    assert own_spawner.pid != old


def test_the_owner_is_told_of_a_dead_spawner(native):
    told = threading.Event()
    spawner = Spawner(on_death=lambda returncode: told.set() if returncode == -9 else None, native=native)
    spawner.start()
    assert spawner.pid is not None
    os.kill(spawner.pid, signal.SIGKILL)
    assert told.wait(20)
    spawner.close()


def test_a_lapsed_lease_ends_commands_and_refuses_new_ones(mine, own_spawner):
    running = mine.begin_shell(STUBBORN)
    running.see("ready")
    own_spawner.lease(boottime_in(0.5))
    assert running.end().reason is Reason.WORKER_LOST
    assert mine.processes() == []
    refused = mine.run("true").verdict
    assert (refused.reason, refused.exit_code) == (Reason.WORKER_LOST, None)
    own_spawner.lease(boottime_in(60))
    assert mine.run("true").verdict.exit_code == 0


def test_a_renewed_lease_lets_a_command_live(mine, own_spawner):
    def attempt(seconds: float) -> bool:
        running = mine.begin_shell(f"echo ready; sleep {seconds + 0.2}; exit 4", timeout_seconds=300)
        running.see("ready")
        own_spawner.lease(boottime_in(seconds))
        own_spawner.lease(boottime_in(300))
        verdict = running.end()
        assert verdict.exit_code == 4 or verdict.reason is Reason.WORKER_LOST, verdict
        return verdict.exit_code == 4

    with_enough_time(attempt, 2.0)


def test_closing_the_spawner_ends_every_command_at_once(level, report, state_dir, native):
    assert report.plan is not None
    spawner = Spawner(native=native)
    sandbox = Sandbox(state_dir, plan_for(level, report.plan), Runner(spawner))
    running = sandbox.begin_shell(STUBBORN, terminate_grace_seconds=60)
    running.see("ready")
    spawner.close()
    assert running.end().reason is Reason.WORKER_LOST
    assert sandbox.processes() == []
    with pytest.raises(SpawnerUnavailable):
        sandbox.run("true")


def test_a_command_whose_handle_is_closed_is_ended(mine):
    handle = mine.runner.start(replace(mine.template, argv=("sleep", "300")), lambda *_: None)
    assert eventually(lambda: mine.processes() != [])
    handle.close()
    assert eventually(lambda: mine.processes() == [])


def test_what_a_sink_raises_ends_the_command_and_is_raised(mine):
    def sink(_: str, chunk: bytes) -> None:
        raise LookupError(chunk.decode())

    with pytest.raises(LookupError, match="ready"):
        mine.run("/bin/sh", "-c", "echo ready; sleep 300", sink=sink)
    assert mine.processes() == []


def test_the_monitor_killed_from_outside_is_no_launch_fault(mine, own_spawner):
    running = mine.begin_shell("echo ready; (setsid sleep 300 &); sleep 300")
    running.see("ready")
    for pid in proctree.children_of(own_spawner.pid):
        os.kill(pid, signal.SIGKILL)
    verdict = running.end()
    assert (verdict.reason, verdict.error) == (Reason.SIGNAL, None)
    assert mine.processes() == []


def test_a_command_sent_to_a_spawner_that_just_died_runs_on_the_next(mine, own_spawner):
    for _ in range(10):
        own_spawner.start()
        os.kill(own_spawner.pid, signal.SIGKILL)
        verdict = mine.run("true").verdict
        # Either it was taken and is lost, or it runs; it is never refused and never hangs.
        assert verdict.exit_code == 0 or verdict.error is LaunchFault.SPAWNER_LOST


def test_a_spawner_that_is_buried_before_it_is_asked_is_replaced(mine, own_spawner, monkeypatch):
    """Its socket is closed by then, in the hands of the command that chose it."""
    own_spawner.start()
    send = wire.send_spawn

    def send_late(sock, *arguments):
        monkeypatch.undo()
        os.kill(own_spawner.pid, signal.SIGKILL)
        assert eventually(lambda: sock.fileno() < 0)
        send(sock, *arguments)

    monkeypatch.setattr(wire, "send_spawn", send_late)
    assert mine.run("true").verdict.exit_code == 0


def test_the_spawner_may_die_at_any_moment(mine, own_spawner):
    """Between fork, namespaces, mounts and exec there is no moment at which something would be left."""
    moments = random.Random(7)
    for _ in range(12):
        running = [mine.begin_shell("(setsid sleep 300 &); sleep 300") for _ in range(3)]
        threading.Event().wait(moments.uniform(0, 0.06))
        os.kill(own_spawner.pid, signal.SIGKILL)
        for command in running:
            assert command.end().error is LaunchFault.SPAWNER_LOST
        assert mine.processes() == []
    assert mine.run("true").verdict.exit_code == 0
