"""A sandbox that keeps too much on the disk is ended and stays ended; others and small ones notice nothing."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from sandloom.execution.disk import Disk, DiskBudgetReached
from sandloom.execution.disk_meter import DiskMeter
from sandloom.execution.file_faults import FaultKind, FileFault
from sandloom.execution.files import SandboxFiles
from sandloom.execution.runner import Runner
from sandloom.execution.self_check import Ran
from sandloom.execution.spec import Budgets, BudgetsUnavailable, Level, Reason
from sandloom.execution.trash import Trash
from tests.isolation.kit import Sandbox, eventually, plan_for

pytestmark = pytest.mark.bwrap

MIB = 1 << 20
#: In many files, so that no other limit is met; it ignores TERM.
FILL = """
import itertools, os, signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print('up', flush=True)
for n in itertools.count():
    with open(f'fill{n}', 'wb') as stream:
        stream.write(bytes(1 << 20))
    if n > 400:
        signal.pause()
"""
EMPTY_FILES = """
import os, signal
os.mkdir('many')
for n in range(3000):
    open(f'many/{n}', 'w').close()
signal.pause()
"""


@pytest.fixture
def disk(monkeypatch) -> Iterator[Disk]:
    # A loaded machine takes seconds to start the meter; a call that cannot wait for its count is refused.
    monkeypatch.setattr("sandloom.execution.disk._COUNT_SECONDS", 60.0)
    disk = Disk()
    yield disk
    disk.close()


@pytest.fixture
def make_bounded(level, report, state_dir, spawner, disk) -> Callable[..., Sandbox]:
    if level is not Level.STRICT and level is not Level.BASIC:
        pytest.skip("the same at every level; shown at the strongest and the weakest")

    def make(**budgets: int) -> Sandbox:
        return Sandbox(state_dir, plan_for(level, report.plan), Runner(spawner, None, disk), budgets=budgets)

    return make


def files_of(sandbox: Sandbox, disk: Disk) -> SandboxFiles:
    template = sandbox.template
    trash = sandbox.path / ".trash"
    trash.mkdir(exist_ok=True)
    room = disk.room(template.group, template.home_dirs, template.budgets, template.uid)
    return SandboxFiles(template.home_dirs, template.uid, template.gid, Trash(str(trash)), room=room)


def overfill(ran: Ran) -> None:
    """What passes its budget is counted while it runs or soon after it, so that it ends by itself or by the budget."""
    assert ran.verdict.exit_code == 0 or ran.verdict.reason is Reason.DISK, ran.verdict


def refused(sandbox: Sandbox) -> str:
    """Why no command starts any more; what a short one wrote is counted soon after it."""
    told: list[str] = []

    def try_one() -> bool:
        try:
            sandbox.run("true")
        except DiskBudgetReached as error:
            told.append(str(error))
        return bool(told)

    assert eventually(try_one)
    return told[0]


def test_who_writes_too_much_is_ended_without_grace_and_named(make_bounded, disk):
    sandbox, other = make_bounded(disk_bytes=8 * MIB), make_bounded(disk_bytes=8 * MIB)
    bystander = other.begin_shell("echo here; sleep 300")
    verdict = sandbox.python(FILL, terminate_grace_seconds=300).verdict
    assert (verdict.reason, verdict.signal) == (Reason.DISK, signal.SIGKILL)
    assert f"disk budget of {8 * MIB} bytes reached: " in verdict.detail
    assert int(verdict.detail.split()[-3]) > 8 * MIB
    assert verdict.duration_ms < 300_000
    assert sandbox.processes() == []
    with pytest.raises(DiskBudgetReached, match="bytes reached"):
        sandbox.run("true")
    for path in sandbox.workspace.glob("fill*"):
        path.unlink()
    assert sandbox.run("true").verdict.exit_code == 0
    assert bystander.verdict is None
    bystander.handle.cancel()
    assert bystander.end().reason is Reason.CANCELLED


def test_many_empty_files_are_too_many_inodes(make_bounded):
    verdict = make_bounded(inodes=1000).python(EMPTY_FILES).verdict
    assert verdict.reason is Reason.DISK
    assert "disk budget of 1000 inodes reached" in verdict.detail


def test_all_commands_of_the_sandbox_are_ended(make_bounded):
    sandbox = make_bounded(disk_bytes=4 * MIB)
    sleeper = sandbox.begin_shell("echo up; sleep 300")
    sleeper.see("up")
    assert sandbox.python(FILL).verdict.reason is Reason.DISK
    assert sleeper.end().reason is Reason.DISK


def test_all_places_of_the_sandbox_count_together(make_bounded):
    sandbox = make_bounded(disk_bytes=3 * MIB)
    places = "/workspace /home /envs /cache"
    overfill(sandbox.shell(f"for p in {places}; do head -c 1M /dev/urandom > $p/big; done"))
    assert "bytes reached" in refused(sandbox)


def test_what_is_sparse_linked_or_in_tmp_does_not_count(make_bounded):
    sandbox = make_bounded(disk_bytes=4 * MIB, inodes=40)
    script = "truncate -s 500M sparse; head -c 2M /dev/urandom > one; for n in $(seq 30); do ln one link$n; done"
    assert sandbox.shell(f"{script}; ln -s / root; head -c 8M /dev/zero > /tmp/big").verdict.exit_code == 0
    assert sandbox.run("true").verdict.exit_code == 0


def test_directories_that_lie_too_deep_or_go_in_circles_are_no_way_around(make_bounded):
    sandbox = make_bounded(disk_bytes=64 * MIB)
    deep = "import os\nfor _ in range(300):\n    os.mkdir('d'); os.chdir('d')"
    overfill(sandbox.python(deep))
    assert "more than 200 deep" in refused(sandbox)


@pytest.mark.root
def test_closed_directories_are_counted_all_the_same(make_bounded):
    sandbox = make_bounded(disk_bytes=2 * MIB)
    overfill(sandbox.shell("mkdir shut; exec 3> shut/big; chmod 0 shut; head -c 3M /dev/zero >&3"))
    assert "bytes reached" in refused(sandbox)


def test_the_service_writes_no_more_than_there_is_room_for(make_bounded, disk):
    sandbox = make_bounded(disk_bytes=4 * MIB)
    files = files_of(sandbox, disk)
    files.write("/workspace/a", bytes(3 * MIB))
    with pytest.raises(FileFault, match=f"disk budget of {4 * MIB} bytes reached") as refused:
        files.write_stream("/workspace/b", (bytes(MIB) for _ in range(3)))
    assert refused.value.kind is FaultKind.DISK_FULL
    assert [path.name for path in sandbox.workspace.iterdir()] == ["a"]
    files.delete("/workspace/a")
    files.write("/workspace/b", bytes(3 * MIB))
    assert sandbox.shell("stat -c %s b").text == str(3 * MIB)


def test_the_service_makes_no_more_files_than_there_is_room_for(make_bounded, disk):
    sandbox = make_bounded(inodes=20)
    files = files_of(sandbox, disk)
    for number in range(20):
        files.write(f"/workspace/f{number}", b"") if number % 2 else files.mkdir(f"/workspace/d{number}")
    with pytest.raises(FileFault, match="disk budget of 20 inodes reached"):
        files.write("/workspace/one-more", b"")
    with pytest.raises(FileFault, match="20 inodes"):
        files.mkdir("/workspace/x/y/z", parents=True)
    assert not (sandbox.workspace / "x").exists()


def test_calls_at_once_do_not_share_the_last_room(make_bounded, disk):
    sandbox = make_bounded(disk_bytes=4 * MIB)
    files, done = files_of(sandbox, disk), []

    def write(number: int) -> None:
        try:
            files.write(f"/workspace/f{number}", bytes(MIB))
            done.append(number)
        except FileFault:
            pass

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # What is being written counts at once, so that calls may refuse each other, and never exceed the budget together.
    assert 1 <= len(done) <= 3
    assert sum(file.stat().st_size for file in sandbox.workspace.iterdir()) == len(done) * MIB


def test_a_meter_that_ends_before_it_is_asked_is_replaced(tmp_path, monkeypatch):
    """Its socket is closed by then, in the hands of the call that chose it."""
    (tmp_path / "file").touch()
    asked = ([str(tmp_path)], (MIB, 100), 30)
    meter = DiskMeter(lambda name, count: None, lambda: None)
    choose = DiskMeter._current

    def choose_early(meter):
        sock = choose(meter)
        monkeypatch.undo()
        os.kill(meter.pid, signal.SIGKILL)
        assert eventually(lambda: sock.fileno() < 0)
        return sock

    try:
        first = meter.count(*asked)
        monkeypatch.setattr(DiskMeter, "_current", choose_early)
        meter.count(*asked)  # answered or not: who asks while it ends may hear nothing, and is not refused
        second = meter.count(*asked)
        assert first is not None
        assert second is not None
        assert (second.byte_count, second.inodes, second.problem) == (first.byte_count, first.inodes, "")
    finally:
        meter.close()


def test_a_meter_that_is_killed_is_replaced_and_goes_on(make_bounded, disk):
    sandbox = make_bounded(disk_bytes=4 * MIB)
    script = 'echo up; while [ ! -e go ]; do sleep 0.1; done; exec python3 -c "$FILL"'
    running = sandbox.begin_shell(script, env={"FILL": FILL})
    running.see("up")
    first = disk.meter_pid
    os.kill(first, signal.SIGKILL)
    assert eventually(lambda: disk.meter_pid not in (None, first))
    (sandbox.workspace / "go").touch()
    assert running.end().reason is Reason.DISK


def test_a_sandbox_that_is_gone_is_forgotten(make_bounded, disk):
    sandbox = make_bounded(disk_bytes=2 * MIB)
    sandbox.shell("head -c 3M /dev/zero > big")
    sandbox.runner.forget(sandbox.template.group)
    (sandbox.workspace / "big").unlink()
    assert sandbox.run("true").verdict.exit_code == 0


def test_a_cancelled_command_stays_cancelled(make_bounded):
    sandbox = make_bounded(disk_bytes=2 * MIB)
    running = sandbox.begin_shell("echo up; sleep 300", terminate_grace_seconds=0)
    running.see("up")
    running.handle.cancel()
    running.handle.end_at_disk_budget("late")
    assert running.end().reason is Reason.CANCELLED


def test_without_a_meter_a_disk_budget_is_no_start_and_without_a_budget_there_is_no_meter(make_bounded, disk, spawner):
    sandbox = make_bounded()
    assert sandbox.run("true").verdict.exit_code == 0
    assert disk.meter_pid is None
    bounded = replace(sandbox.template, budgets=Budgets(disk_bytes=MIB))
    with pytest.raises(BudgetsUnavailable, match="disk"):
        Runner(spawner).start(bounded, lambda *_: None)


NAMELESS = """
import os
fd = os.open('big', os.O_RDWR | os.O_CREAT)
os.unlink('big')
os.write(fd, bytes(8 << 20))
print(os.fstat(fd).st_blocks * 512 >= 8 << 20, flush=True)
"""


def test_not_contained_an_open_file_without_a_name_is_not_counted_and_is_gone_with_the_command(make_bounded):
    sandbox = make_bounded(disk_bytes=2 * MIB)
    assert sandbox.python(f"{NAMELESS}import time; time.sleep(2)").text == "True"
    assert list(sandbox.workspace.iterdir()) == []
    assert sandbox.run("true").verdict.exit_code == 0
