"""The owner of one command's processes where no PID namespace owns them (level ``basic``).

A forked copy of the spawner, root, that the command's uid cannot signal. As child subreaper it inherits every
descendant that left its session, group or parent, so walking down from here finds all of them. The command is over
when bwrap is; whatever is left then is killed before the keeper reports and exits.
"""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Sequence
from typing import Any, NoReturn

from . import child, linux, proctree, wire

KILL_NOW = signal.SIGUSR1
_SIGNALS = (signal.SIGCHLD, signal.SIGTERM, KILL_NOW)
_KILL_PASS_SECONDS = 0.01


def run(request: dict[str, Any], fds: Sequence[int], parent: int) -> NoReturn:
    """Start the command and keep it until nothing of it is left.

    ``fds``: the six of ``child.start``, then the pipe for the report, which bwrap and the command never have.
    """
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        linux.become_subreaper()
        linux.die_with_parent(KILL_NOW)
        if os.getppid() != parent:
            os._exit(1)
        own_pid = os.getpid()
        bwrap = os.fork()
        if bwrap == 0:
            child.start(request, fds[:-1], own_pid)
        report_fd = fds[-1]
        # The spawner's socket stays: the worker sees its end when this process, too, has done its work.
        linux.close_all_but({report_fd, request["main_fd"]})
        os.write(report_fd, wire.pack(_Keeper(bwrap).serve()))
        os._exit(0)
    finally:
        os._exit(1)


class _Keeper:
    def __init__(self, bwrap: int) -> None:
        self._bwrap = bwrap
        self._ending = False
        self._usage: list[resource.struct_rusage] = []
        self._status: int | None = None

    def serve(self) -> dict[str, Any]:
        while self._reap():
            if self._ending:
                proctree.kill(proctree.descendants([os.getpid()]))
            self._next_signal()
        return {"status": self._status, **usage_facts(self._usage)}

    def _next_signal(self) -> None:
        timeout = _KILL_PASS_SECONDS if self._ending else 3600.0
        info = signal.sigtimedwait(_SIGNALS, timeout)
        if info is None:
            return
        if info.si_signo == KILL_NOW:
            self._ending = True
        elif info.si_signo == signal.SIGTERM:
            # Not bwrap itself: its death would take the command with it, without the grace.
            proctree.terminate(pid for pid in proctree.descendants([os.getpid()]) if pid != self._bwrap)

    def _reap(self) -> bool:
        """Collect what has ended; whether anything is left."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            self._usage.append(usage)
            if pid == self._bwrap:
                self._status = status
                self._ending = True


def usage_facts(usages: Sequence[resource.struct_rusage]) -> dict[str, int]:
    """Sums over reaped processes; the peak of memory is that of the largest one."""
    return {
        "cpu_ms": round(1000 * sum(usage.ru_utime + usage.ru_stime for usage in usages)),
        "max_rss_bytes": max((usage.ru_maxrss for usage in usages), default=0) * 1024,
        "io_bytes": 512 * sum(usage.ru_inblock + usage.ru_oublock for usage in usages),
    }
