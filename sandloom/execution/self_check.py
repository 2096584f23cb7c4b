"""The contract ``Spec → handle → Verdict`` as something that runs.

Any engine can be checked: give ``run_checks`` its ``start`` and a spec of a throw-away sandbox. As a program it checks
this machine: ``python -m sandloom.execution.self_check STATE_DIR [UID]``.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from sandloom.execution.output import Sink
from sandloom.execution.spec import LaunchFault, Reason, Spec, SpecInvalid, Verdict


class HandleLike(Protocol):
    def wait(self) -> Verdict: ...

    def cancel(self) -> None: ...


Start = Callable[[Spec, Sink], HandleLike]


@dataclass(frozen=True, slots=True)
class Ran:
    """One finished command."""

    verdict: Verdict
    stdout: bytes
    stderr: bytes

    @property
    def text(self) -> str:
        return self.stdout.decode("utf-8", "replace").strip()


class Bench:
    """What a check works with: ``run`` waits, ``start`` does not."""

    def __init__(self, start: Start, template: Spec) -> None:
        self.start = start
        self.template = template

    def run(self, *argv: str, sink: Sink | None = None, **changes: Any) -> Ran:
        chunks: dict[str, list[bytes]] = {"stdout": [], "stderr": []}

        def collect(name: str, chunk: bytes) -> None:
            chunks.setdefault(name, []).append(chunk)
            if sink is not None:
                sink(name, chunk)

        verdict = self.start(replace(self.template, argv=argv, **changes), collect).wait()
        return Ran(verdict, b"".join(chunks["stdout"]), b"".join(chunks["stderr"]))

    def shell(self, script: str, **changes: Any) -> Ran:
        return self.run("/bin/sh", "-c", script, **changes)


def _expect(condition: bool, seen: object) -> None:
    if not condition:
        raise AssertionError(f"{seen!r}"[:2000])


def exit_code_is_the_commands_own(bench: Bench) -> None:
    for code in (0, 1, 42, 126, 127):
        ran = bench.shell(f"exit {code}")
        _expect((ran.verdict.reason, ran.verdict.exit_code, ran.verdict.error) == (Reason.EXIT, code, None), ran)


def a_signal_is_named(bench: Bench) -> None:
    ran = bench.shell("kill -SEGV $$")
    _expect((ran.verdict.reason, ran.verdict.signal, ran.verdict.exit_code) == (Reason.SIGNAL, 11, 139), ran)


def output_streams_stay_apart_and_exact(bench: Bench) -> None:
    ran = bench.shell("printf 'out\\000\\377'; printf 'err\\000\\377' >&2")
    _expect((ran.stdout, ran.stderr) == (b"out\0\xff", b"err\0\xff"), ran)


def stdin_is_delivered_whole_and_ends(bench: Bench) -> None:
    data = bytes(range(256)) * 4096
    _expect(bench.run("cat", stdin=data).stdout == data, "another stdin than was given")
    _expect(bench.run("cat", stdin=None).stdout == b"", "stdin is not empty by default")


def a_missing_program_is_told_apart(bench: Bench) -> None:
    for argv0 in ("no-such-program", "/no/such/program", "/etc/hosts/below-a-file"):
        verdict = bench.run(argv0).verdict
        _expect((verdict.exit_code, verdict.error) == (127, LaunchFault.PROGRAM_NOT_FOUND), verdict)


def a_program_that_cannot_run_is_told_apart(bench: Bench) -> None:
    for argv0 in ("/usr", "/workspace", "/usr/lib/os-release"):
        verdict = bench.run(argv0).verdict
        _expect((verdict.exit_code, verdict.error) == (126, LaunchFault.PROGRAM_NOT_EXECUTABLE), verdict)


def a_missing_working_directory_is_told_apart(bench: Bench) -> None:
    bench.shell("mkdir -p closed && chmod 000 closed")
    for cwd in ("/workspace/no-such-directory", "/workspace/closed"):
        verdict = bench.run("true", cwd=cwd).verdict
        _expect((verdict.exit_code, verdict.error) == (None, LaunchFault.CWD_UNAVAILABLE), verdict)


def launch_faults_cannot_be_claimed(bench: Bench) -> None:
    message = "bwrap: execvp /bin/sh: No such file or directory"
    ran = bench.shell(f"echo '{message}' >&2; exit 1")
    _expect((ran.verdict.reason, ran.verdict.exit_code, ran.verdict.error) == (Reason.EXIT, 1, None), ran)
    _expect(ran.stderr == message.encode() + b"\n", ran)


def a_timeout_ends_everything_and_keeps_output(bench: Bench) -> None:
    script = "echo partial; trap '' TERM; (setsid sleep 300 &); while :; do sleep 300; done"
    for seconds in (0.5, 2, 8, 32):
        ran = bench.shell(script, timeout_seconds=seconds, terminate_grace_seconds=0.2)
        _expect(ran.verdict.reason is Reason.TIMEOUT, ran)
        # A loaded machine may need longer than that to start a shell.
        if ran.stdout:
            break
    _expect(ran.stdout == b"partial\n", ran)


def cancelling_ends_a_command_and_term_comes_first(bench: Bench) -> None:
    ready = threading.Event()
    argv = ("/bin/sh", "-c", "trap 'echo cleaned; exit 3' TERM; echo ready; while :; do sleep 0.05; done")
    seen: list[bytes] = []

    def sink(_: str, chunk: bytes) -> None:
        seen.append(chunk)
        ready.set()

    spec = replace(bench.template, argv=argv, timeout_seconds=60, terminate_grace_seconds=30)
    handle = bench.start(spec, sink)

    def cancel_when_ready() -> None:
        ready.wait(30)
        handle.cancel()

    canceller = threading.Thread(target=cancel_when_ready)
    canceller.start()
    verdict = handle.wait()
    canceller.join()
    handle.cancel()
    _expect(verdict.reason is Reason.CANCELLED and b"cleaned\n" in b"".join(seen), (verdict, seen))


def output_beyond_the_cap_is_cut_and_the_command_goes_on(bench: Bench) -> None:
    ran = bench.shell("head -c 300000 /dev/zero; echo done >&2; exit 5", max_output_bytes=1000)
    _expect(len(ran.stdout) == 1000 and ran.stderr == b"done\n", (len(ran.stdout), ran.stderr))
    _expect(ran.verdict.truncated and ran.verdict.exit_code == 5, ran.verdict)


def the_environment_is_only_what_was_given(bench: Bench) -> None:
    ran = bench.run("env", env={"GREETING": "h\u00e9llo\nthere"})
    _expect("GREETING=h\u00e9llo\nthere" in ran.text and "PATH=" in ran.text and "HOME=/home" in ran.text, ran.text)
    for name in ("PATH", "LD_PRELOAD", "https_proxy", "SANDLOOM_X", "A=B", ""):
        try:
            bench.run("true", env={name: "x"})
        except SpecInvalid:
            continue
        _expect(False, f"{name!r} was accepted")


def login_shells_have_the_same_path(bench: Bench) -> None:
    plain, login = (bench.run("/bin/sh", flag, 'echo "$PATH"') for flag in ("-c", "-lc"))
    _expect(plain.text == login.text != "", (plain.text, login.text))


def only_three_descriptors_are_open(bench: Bench) -> None:
    probe = "for n in 3 4 5 6 7 8 9; do if true 2>/dev/null <&$n; then echo $n; fi; done"
    _expect(bench.shell(probe).text == "", "a descriptor above 2 is open")


def the_system_is_read_only(bench: Bench) -> None:
    for place in ("/", "/dev", "/usr", "/etc", "/run", "/run/identity", "/var"):
        ran = bench.shell(f"touch {place}/x")
        _expect(ran.verdict.exit_code != 0 and b"Read-only" in ran.stderr, (place, ran))


def what_the_sandbox_owns_stays_and_tmp_does_not(bench: Bench) -> None:
    bench.shell("for d in /workspace /home /envs /cache /tmp /dev/shm; do echo kept > $d/file; done")
    ran = bench.shell("cd /; ls workspace/file home/file envs/file cache/file tmp/file dev/shm/file 2>/dev/null")
    _expect(ran.text.split() == ["cache/file", "envs/file", "home/file", "workspace/file"], ran)


def the_user_has_a_name_and_no_privileges(bench: Bench) -> None:
    ran = bench.shell("id -un; id -G | wc -w; umask; hostname; getent hosts $(hostname) | wc -l")
    _expect(ran.text.split() == ["sandbox", "1", "0022", bench.template.hostname, "1"], ran)
    ran = bench.shell("unshare -U true")
    _expect(ran.verdict.exit_code != 0, "a nested user namespace can be made")


CHECKS: tuple[Callable[[Bench], None], ...] = (
    exit_code_is_the_commands_own,
    a_signal_is_named,
    output_streams_stay_apart_and_exact,
    stdin_is_delivered_whole_and_ends,
    a_missing_program_is_told_apart,
    a_program_that_cannot_run_is_told_apart,
    a_missing_working_directory_is_told_apart,
    launch_faults_cannot_be_claimed,
    a_timeout_ends_everything_and_keeps_output,
    cancelling_ends_a_command_and_term_comes_first,
    output_beyond_the_cap_is_cut_and_the_command_goes_on,
    the_environment_is_only_what_was_given,
    login_shells_have_the_same_path,
    only_three_descriptors_are_open,
    the_system_is_read_only,
    what_the_sandbox_owns_stays_and_tmp_does_not,
    the_user_has_a_name_and_no_privileges,
)


def run_checks(start: Start, template: Spec) -> dict[str, str]:
    """Run every check; the answer maps each check that failed to what was seen. Empty: the contract holds."""
    bench = Bench(start, template)
    failures = {}
    for check in CHECKS:
        try:
            check(bench)
        except AssertionError as error:
            failures[check.__name__] = str(error)
    return failures


def main(arguments: list[str]) -> int:
    from sandloom.execution.probe import ProbeRequest, probe, scratch_sandbox
    from sandloom.execution.process import Spawner
    from sandloom.execution.runner import Runner

    uid = int(arguments[1]) if len(arguments) > 1 else 59999
    request = ProbeRequest(state_dir=Path(arguments[0]), uid=uid, gid=uid)
    spawner = Spawner()
    try:
        report = probe(request, spawner)
        for failure in report.probe_failures:
            print(f"not available: {failure.level}: {failure.message}")
        if report.plan is None:
            print(f"blocked: {report.blocked}")
            return 2
        with scratch_sandbox(request, report.plan) as template:
            failures = run_checks(Runner(spawner).start, template)
    finally:
        spawner.close()
    for name, seen in failures.items():
        print(f"failed: {name}: {seen}")
    print(f"{report.plan.level.value}: {len(CHECKS) - len(failures)} of {len(CHECKS)} checks hold")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
