"""The compiled helper: built here, loaded only when it can be trusted, and saying what the twin says."""

from __future__ import annotations

import fcntl
import os
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sandloom.execution.native import build, library
from sandloom.execution.process import Spawner
from sandloom.execution.runner import Runner
from sandloom.execution.spawner import native as loader
from sandloom.execution.spawner import wire
from sandloom.execution.spec import LaunchFault, Limits, Reason
from tests.isolation.kit import NATIVE_AND_TWIN
from tests.services.need import missing
from tests.services.process import ROOT

pytestmark = pytest.mark.bwrap

STATE = """
import os, resource, signal
status = dict(line.split(':\\t') for line in open('/proc/self/status').read().splitlines())
for name in ('Uid', 'Gid', 'Groups', 'SigBlk', 'SigIgn', 'SigCgt', 'CapEff', 'CapPrm', 'CapInh', 'NoNewPrivs'):
    print(name, status[name].split())
print(sorted(os.environ), os.getcwd(), open('/proc/self/oom_score_adj').read(), open('/proc/self/cmdline').read())
print([resource.getrlimit(number) for number in range(16)], oct(os.umask(0)))
print(sorted(os.listdir('/proc/self/fd'))[:4], os.listdir('/proc/1/fd'))
"""


@pytest.fixture
def built() -> Path:
    path = build.build()
    if path is None:
        missing("a C compiler")
    return path


def test_a_command_finds_the_same_state_with_the_helper_and_with_its_twin(sandbox, built):
    seen = []
    for native in (True, False):
        spawner = Spawner(native=native)
        sandbox.start = Runner(spawner).start
        seen.append(sandbox.python(STATE, cwd="/tmp", env={"B": "", "A": "x=y"}))
        spawner.close()
    if sandbox.template.plan.pid_namespace:
        assert seen[0].verdict.exit_code == 0, seen[0]
    assert seen[0].text == seen[1].text


@NATIVE_AND_TWIN
@pytest.mark.parametrize(
    ("argv", "limits", "fault", "words"),
    [
        (("true", "x" * 200_000), Limits(), LaunchFault.ARGUMENTS_TOO_LONG, "Argument list too long"),
        # Without root the engine asks for no more than the hard limit allows.
        pytest.param(
            ("true",), Limits(max_open_files=1 << 40), LaunchFault.ISOLATION_FAILED, "Error: ", marks=pytest.mark.root
        ),
    ],
    ids=["arguments", "limit"],
)
def test_what_fails_before_bwrap_is_told(sandbox, argv, limits, fault, words):
    verdict = sandbox.run(*argv, limits=limits).verdict
    assert (verdict.reason, verdict.error) == (Reason.NOT_STARTED, fault)
    assert words in verdict.detail


@NATIVE_AND_TWIN
def test_a_control_group_that_is_gone_is_told(sandbox, monkeypatch):
    pack = wire.pack
    monkeypatch.setattr(wire, "pack", lambda value: pack({**value, "attach": ["/run/no-such-group/cgroup.procs"]}))
    verdict = sandbox.run("true").verdict
    assert (verdict.reason, verdict.error) == (Reason.NOT_STARTED, LaunchFault.ISOLATION_FAILED)
    assert "No such file" in verdict.detail


def test_it_is_named_by_its_source_and_built_once(built):
    assert built.name == library.file_name()
    assert build.build() == built
    info = built.stat()
    assert info.st_mode & 0o7777 == 0o755
    assert info.st_uid == os.geteuid() or info.st_uid == 0


def loads(path: Path) -> bool:
    """In a process of its own: what is loaded once stays."""
    code = "import sys; from sandloom.execution.spawner import native; sys.exit(native.load(sys.argv[1]) is None)"
    return subprocess.run([sys.executable, "-c", code, path], cwd=ROOT, check=False).returncode == 0


def test_a_library_that_others_could_have_written_is_not_loaded(built, tmp_path):
    copy = Path(shutil.copy(built, tmp_path / "copy.so"))
    copy.chmod(0o755)
    assert loads(copy)
    (tmp_path / "link.so").symlink_to(copy)
    assert not loads(tmp_path / "link.so")
    for mode in (0o775, 0o757):
        copy.chmod(mode)
        assert not loads(copy)
        assert not library.trusted(copy)


@pytest.mark.root
def test_a_library_of_another_user_is_not_loaded(built, tmp_path):
    copy = Path(shutil.copy(built, tmp_path / "copy.so"))
    copy.chmod(0o755)
    os.chown(copy, 65534, 65534)
    assert not loads(copy)
    assert not library.trusted(copy)


@pytest.mark.parametrize("content", [b"", b"\x7fELF and no more"])
def test_a_broken_library_is_not_loaded(tmp_path, content):
    (tmp_path / "broken.so").write_bytes(content)
    (tmp_path / "broken.so").chmod(0o755)
    assert not loads(tmp_path / "broken.so")
    assert not loads(tmp_path / "absent.so")


def test_no_compiler_is_no_fault_and_a_failing_one_is_told(monkeypatch, tmp_path):
    monkeypatch.setattr(library, "directories", lambda: (tmp_path / "cache",))
    monkeypatch.setenv("CC", "no-such-compiler")
    assert (build.build(), build.main()) == (None, 0)
    monkeypatch.setenv("CC", "false")
    with pytest.raises(build.BuildFailed, match="false"):
        build.build()
    assert build.main() == 1


def test_what_cannot_be_passed_to_a_program_is_refused_before_any_process(built):
    native = loader.load(str(built))
    assert native is not None
    nothing: dict[str, object] = {"env": {}, "rlimits": [], "switch_user": False, "attach": [], "open": [], "cpus": []}
    for argv in (["/bin/true", "a\0b"], ["/bin/true", "\ud800"]):
        with pytest.raises(OSError, match=r"null byte|surrogates"):
            native.start(nothing | {"argv": argv}, (-1, -1, -1))


def high(fd: int) -> int:
    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 100)


def test_files_are_opened_as_their_numbers_and_signals_reach_the_caller_again(built, tmp_path):
    native = loader.load(str(built))
    assert native is not None
    (tmp_path / "in").write_text("from a file")
    with open(tmp_path / "out", "wb") as out, open(os.devnull) as null:
        request = {
            "argv": ["/bin/sh", "-c", "cat <&3; cat <&7; ulimit -n; ls /proc/self/fd | wc -l"],
            "env": {"PATH": os.defpath},
            "rlimits": [(resource.RLIMIT_NOFILE, 77, 99)],
            "switch_user": False,
            "attach": [],
            "open": [(str(tmp_path / "in"), 3), (str(tmp_path / "in"), 7)],
            "cpus": [],
        }
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        pid = native.start(request, [high(stream.fileno()) for stream in (null, out, out)])
        assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == mask
        assert os.waitpid(pid, 0)[1] == 0
    assert (tmp_path / "out").read_text().split() == ["from", "a", "filefrom", "a", "file77", "6"]


@NATIVE_AND_TWIN
def test_a_spawner_with_many_descriptors_starts_commands_that_may_have_few(sandbox):
    held = [sandbox.begin_shell("sleep 300", timeout_seconds=300) for _ in range(30)]
    assert sandbox.run("true", limits=Limits(max_open_files=40)).verdict.exit_code == 0
    for command in held:
        command.handle.cancel()
    assert {command.end().reason for command in held} == {Reason.CANCELLED}
