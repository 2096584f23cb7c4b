"""Who failed, the sandbox or the command? One pure decision over what the spawner reports.

bwrap writes ``exit-code`` to its status descriptor only when the program was executed, and the command has no way to
that descriptor. Without it the program never ran, or something killed bwrap:

- With a PID namespace a command cannot reach bwrap outside. So bwrap *exiting* without ``exit-code`` means that the
  program never ran, every byte on stderr is bwrap's, and its message can be believed.
- Without one (``basic``) the command shares a uid with the outer bwrap and can end it. There bwrap must in addition
  have consumed the byte on its ``--block-fd``: as long as it has not, the command cannot have run. A command that
  tampers with its own monitor afterwards can at most describe its own end wrongly, as a missing program or a signal; it
  can never look like a sandbox that could not be set up, which is what a caller might retry.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from typing import Any

from sandloom.execution.spec import GroupFacts, LaunchFault, Reason, Usage, Verdict

_CAUSES = {
    "timeout": Reason.TIMEOUT,
    "cancelled": Reason.CANCELLED,
    "lease": Reason.WORKER_LOST,
    "abandoned": Reason.WORKER_LOST,
}
_SIGXCPU, _SIGXFSZ, _SIGKILL = 24, 25, 9
_LAST_SIGNAL = 64
_DETAIL_BYTES = 2048
_PATH_MAX = 4096
_ERRNO_OF_TEXT = {
    os.strerror(number): number
    for number in (
        errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.ELOOP, errno.ENOEXEC, errno.E2BIG, errno.ETXTBSY,
        errno.EAGAIN, errno.ENOMEM, errno.EISDIR, errno.ENAMETOOLONG, errno.EINVAL, errno.EIO,
    )
}  # fmt: skip
_EXEC_FAULTS = {
    errno.ENOENT: LaunchFault.PROGRAM_NOT_FOUND,
    errno.ENOTDIR: LaunchFault.PROGRAM_NOT_FOUND,
    errno.ENAMETOOLONG: LaunchFault.PROGRAM_NOT_FOUND,
    errno.E2BIG: LaunchFault.ARGUMENTS_TOO_LONG,
    errno.EAGAIN: LaunchFault.PROCESS_LIMIT,
    errno.ENOMEM: LaunchFault.PROCESS_LIMIT,
}
_EXIT_CODES = {LaunchFault.PROGRAM_NOT_FOUND: 127, LaunchFault.PROGRAM_NOT_EXECUTABLE: 126}


def judge(
    facts: Mapping[str, Any],
    *,
    argv0: str,
    cwd: str,
    cpu_seconds: int,
    stderr_head: bytes,
    group: GroupFacts | None = None,
    disk_reached: str = "",
) -> Verdict:
    """The verdict, without ``truncated``. ``facts`` as sent by the spawner (see ``spawner.job``).

    ``disk_reached``: the disk budget that the sandbox is at, with its numbers; a cancelled command was ended for it.
    """
    counted = group or GroupFacts()
    usage = Usage(
        cpu_ms=facts.get("cpu_ms", 0),
        max_rss_bytes=counted.memory_peak_bytes or facts.get("max_rss_bytes", 0),
        pids_peak=counted.pids_peak,
        io_bytes=facts.get("io_bytes"),
        oom_killed=counted.oom_kills > 0,
    )
    verdict = _at_a_bound(facts, counted, disk_reached) or _outcome(
        facts, argv0, cwd, cpu_seconds, usage, stderr_head, disk_reached
    )
    return verdict(usage, facts.get("duration_ms", 0))


def _at_a_bound(facts: Mapping[str, Any], counted: GroupFacts, disk_reached: str) -> _Partial | None:
    """A command that failed after its sandbox met a bound failed because of it. One that coped is not a failure."""
    exit_code, status = facts.get("exit_code"), facts.get("status")
    if facts.get("cause") is not None or exit_code == 0:
        return None
    if counted.oom_kills:
        if exit_code is None:
            # The kernel chose bwrap itself: there is no code, and what bwrap may have said is about nothing else.
            return _Partial(Reason.OOM, 128 + _SIGKILL, _SIGKILL, detail=counted.memory_bound)
        return _Partial(Reason.OOM, exit_code, _signal_of(exit_code), detail=counted.memory_bound)
    if disk_reached and exit_code is not None:
        return _Partial(Reason.DISK, exit_code, _signal_of(exit_code), detail=disk_reached)
    if not counted.refused_forks:
        return None
    if exit_code is not None:
        return _Partial(Reason.PIDS, exit_code, _signal_of(exit_code), detail=counted.pids_bound)
    if status is not None and os.WIFEXITED(status):
        return _Partial(Reason.NOT_STARTED, error=LaunchFault.PROCESS_LIMIT, detail=counted.pids_bound)
    return None


def lost(detail: str) -> Verdict:
    """The spawner died before it could report; what it ran has been killed."""
    return Verdict(Reason.WORKER_LOST, error=LaunchFault.SPAWNER_LOST, detail=detail)


class _Partial:
    """A verdict that still lacks usage and duration."""

    def __init__(
        self,
        reason: Reason,
        exit_code: int | None = None,
        signal: int | None = None,
        error: LaunchFault | None = None,
        detail: str = "",
    ) -> None:
        self._fields = (reason, exit_code, signal, error, detail)

    def __call__(self, usage: Usage, duration_ms: int) -> Verdict:
        reason, exit_code, signal, error, detail = self._fields
        return Verdict(reason, exit_code, signal, error, detail, usage, duration_ms)


def _outcome(
    facts: Mapping[str, Any],
    argv0: str,
    cwd: str,
    cpu_seconds: int,
    usage: Usage,
    stderr_head: bytes,
    disk_reached: str,
) -> _Partial:
    if facts.get("cause") is not None:
        return _ended(facts, disk_reached)
    if facts.get("launch_error"):
        return _never_launched(facts)
    if facts.get("not_entered"):
        return _not_entered(facts["not_entered"], cwd)
    exit_code = facts.get("exit_code")
    if exit_code is not None:
        return _ran(exit_code, cpu_seconds, usage)
    status = facts.get("status")
    if status is None or facts.get("set_up") is False:
        return _isolation_failed(stderr_head)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return _Partial(Reason.SIGNAL, 128 + number, number, detail="the monitor of the command was killed")
    return _bwrap_gave_up(argv0, cwd, stderr_head)


def _ended(facts: Mapping[str, Any], disk_reached: str) -> _Partial:
    """Ended by the engine. Whether TERM was enough shows in ``signal``; a command may also have exited by itself."""
    reason = _CAUSES[facts["cause"]]
    detail = facts.get("launch_error") or ""
    if reason is Reason.CANCELLED and disk_reached:
        reason, detail = Reason.DISK, disk_reached
    exit_code = facts.get("exit_code")
    if exit_code is not None:
        return _Partial(reason, exit_code, _signal_of(exit_code), detail=detail)
    status = facts.get("status")
    if status is not None and os.WIFSIGNALED(status):
        return _Partial(reason, 128 + os.WTERMSIG(status), os.WTERMSIG(status), detail=detail)
    return _Partial(reason, detail=detail)


def _not_entered(said: str, cwd: str) -> _Partial:
    """What the shell that enters the working directory said, on a descriptor of its own (see ``argv``)."""
    if said == "program":
        fault = LaunchFault.PROGRAM_NOT_FOUND
        return _Partial(Reason.NOT_STARTED, 127, error=fault, detail=os.strerror(errno.ENOENT))
    return _Partial(Reason.NOT_STARTED, error=LaunchFault.CWD_UNAVAILABLE, detail=f"{cwd}: it cannot be entered")


def _never_launched(facts: Mapping[str, Any]) -> _Partial:
    fault = {
        errno.E2BIG: LaunchFault.ARGUMENTS_TOO_LONG,
        errno.EAGAIN: LaunchFault.PROCESS_LIMIT,
    }.get(facts.get("errno") or 0, LaunchFault.ISOLATION_FAILED)
    return _Partial(Reason.NOT_STARTED, error=fault, detail=str(facts["launch_error"]))


def _ran(exit_code: int, cpu_seconds: int, usage: Usage) -> _Partial:
    number = _signal_of(exit_code)
    if number == _SIGXCPU or (number == _SIGKILL and _used_up(usage.cpu_ms, cpu_seconds)):
        return _Partial(Reason.CPU_LIMIT, exit_code, number, detail=f"used {usage.cpu_ms} ms of {cpu_seconds} s CPU")
    if number == _SIGXFSZ:
        return _Partial(Reason.FILE_SIZE, exit_code, number, detail="a file grew beyond the size limit")
    if number is not None:
        return _Partial(Reason.SIGNAL, exit_code, number)
    return _Partial(Reason.EXIT, exit_code)


def _used_up(cpu_ms: int, cpu_seconds: int) -> bool:
    """The kernel enforces the limit by ticks and measures usage exactly; on a busy machine the two drift apart."""
    return cpu_ms + 500 >= 900 * cpu_seconds


def _signal_of(exit_code: int) -> int | None:
    """bwrap reports a death by signal as 128 + number, as a shell does."""
    return exit_code - 128 if 128 < exit_code <= 128 + _LAST_SIGNAL else None


def _bwrap_gave_up(argv0: str, cwd: str, stderr_head: bytes) -> _Partial:
    message = stderr_head.decode("utf-8", "surrogateescape").rstrip("\n")
    if len(argv0) >= _PATH_MAX and message.startswith("bwrap: execvp "):
        fault = LaunchFault.PROGRAM_NOT_FOUND
        return _Partial(Reason.NOT_STARTED, 127, error=fault, detail=os.strerror(errno.ENAMETOOLONG))
    after_exec = _after(message, f"bwrap: execvp {argv0}: ")
    if after_exec is not None:
        fault = _EXEC_FAULTS.get(_ERRNO_OF_TEXT.get(after_exec, 0), LaunchFault.PROGRAM_NOT_EXECUTABLE)
        return _Partial(Reason.NOT_STARTED, _EXIT_CODES.get(fault), error=fault, detail=after_exec)
    after_chdir = _after(message, f"bwrap: Can't chdir to {cwd}: ")
    if after_chdir is not None:
        return _Partial(Reason.NOT_STARTED, error=LaunchFault.CWD_UNAVAILABLE, detail=f"{cwd}: {after_chdir}")
    return _isolation_failed(stderr_head)


def _after(message: str, prefix: str) -> str | None:
    return message[len(prefix) :] if message.startswith(prefix) else None


def _isolation_failed(stderr_head: bytes) -> _Partial:
    """Everything on stderr is bwrap's here."""
    detail = stderr_head[:_DETAIL_BYTES].decode("utf-8", "replace").strip() or "bwrap ended without a word"
    full = detail.endswith(os.strerror(errno.EAGAIN))
    fault = LaunchFault.PROCESS_LIMIT if full else LaunchFault.ISOLATION_FAILED
    return _Partial(Reason.NOT_STARTED, error=fault, detail=detail)
