"""One command inside the spawner: its processes, how it is ended, and the facts that are left of it."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
import time
from typing import Any

from . import child, groups, keeper, proctree, wire
from .native import Native, NeverRan

RUNNING, TERMINATING, KILLING = range(3)
_KILL_AGAIN_SECONDS = 0.1
_STATUS_READ_BYTES = 64 * 1024


class Job:
    """Started by ``launch``; over when ``waiting`` (pids still to be reaped) is empty and nothing was missed."""

    def __init__(self, request: dict[str, Any], control: socket.socket) -> None:
        self.request = request
        self.control = control
        self.phase = RUNNING
        self.cause: str | None = None
        self.waiting: set[int] = set()
        self.deadline: float | None = None
        self._kept = not request["pid_namespace"]
        self._started = time.monotonic()
        self._main = 0
        self._inner: int | None = None
        self._status_fd = -1
        self._setup_fd = -1
        self._report_fd = -1
        self._enter_fd = -1
        self._status_text = b""
        self._documents: dict[str, Any] = {}
        self._report: dict[str, Any] | None = None
        self._main_status: int | None = None
        self._usage: list[resource.struct_rusage] = []
        self._inner_usage: resource.struct_rusage | None = None

    def launch(self, stdin: int, stdout: int, stderr: int, native: Native | None) -> int:
        """Start it; the caller closes the three descriptors. Returns the pid to reap. Raises ``OSError``."""
        self._status_fd, status_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        ours_to_close = [status_write]
        if self._kept:
            self._report_fd, report_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
            self._setup_fd, setup_write = os.pipe2(os.O_CLOEXEC)
            os.write(setup_write, b"\0")
            ours_to_close += [report_write, setup_write]
        enter_write = -1
        if self.request["enters"]:
            self._enter_fd, enter_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
            ours_to_close.append(enter_write)
        fds = (stdin, stdout, stderr, status_write, self._setup_fd, enter_write)
        try:
            if self._kept:
                self._main = self._fork_keeper((*fds, report_write))
            elif native is None:
                self._main = self._fork(fds)
            else:
                self._main = self._start(native, fds)
        finally:
            for fd in ours_to_close:
                os.close(fd)
        self.waiting.add(self._main)
        if self.request["timeout_seconds"] is not None:
            self.deadline = self._started + self.request["timeout_seconds"]
        return self._main

    def _fork(self, fds: tuple[int, ...]) -> int:
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            child.start(self.request, fds, parent)
        return pid

    def _fork_keeper(self, fds: tuple[int, ...]) -> int:
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            keeper.run(self.request, fds, parent)
        return pid

    def _start(self, native: Native, fds: tuple[int, ...]) -> int:
        """The same as ``_fork``; but a failure is known here, and is told as the child there tells it."""
        try:
            return native.start(self.request, fds)
        except NeverRan as error:
            os.write(fds[3], child.told(error.fault))
            return error.pid

    # Ending

    def end(self, cause: str, *, at_once: bool = False) -> None:
        """Begin to end the command; the first cause stays."""
        if self.cause is None:
            self.cause = cause
        if at_once:
            self._kill()
        elif self.phase == RUNNING:
            self._terminate()

    def expire(self, now: float) -> None:
        """Act on ``deadline``: time is up, the grace is up, or the last KILL needs repeating."""
        if self.deadline is None or now < self.deadline:
            return
        if self.phase == RUNNING:
            self.end("timeout")
        else:
            self._kill()

    def _terminate(self) -> None:
        self.phase = TERMINATING
        self.deadline = time.monotonic() + self.request["grace_seconds"]
        if self._kept:
            reached = proctree.send(self._main, signal.SIGTERM)
        else:
            inner = self._find_inner()
            reached = inner is not None and proctree.terminate(proctree.descendants([inner])) > 0
        if not reached or self.request["grace_seconds"] <= 0:
            self._kill()

    def _kill(self) -> None:
        """Inner PID 1 first: its death takes the whole namespace in milliseconds, that of bwrap outside in seconds."""
        self.phase = KILLING
        self.deadline = time.monotonic() + _KILL_AGAIN_SECONDS
        if self._kept and self._main in self.waiting:
            proctree.send(self._main, keeper.KILL_NOW)
            self._kill_group()
            return
        inner = self._find_inner()
        if inner is not None:
            proctree.send(inner, signal.SIGKILL)
        else:
            proctree.kill(proctree.descendants(self.waiting))
        for pid in self.waiting:
            proctree.send(pid, signal.SIGKILL)
        self._kill_group()

    def _kill_group(self) -> None:
        if self.request["kill_group"]:
            groups.kill(self.request["kill_group"])

    def _find_inner(self) -> int | None:
        """PID 1 of the namespace, if it is known and still ours: the number could be in use again."""
        self._read_status()
        if self._inner is None:
            return None
        process = proctree.read_process(self._inner)
        if process is None or process.parent not in (self._main, os.getpid()):
            return None
        return self._inner

    # Reaping

    def reaped(self, pid: int, status: int, usage: resource.struct_rusage) -> None:
        self.waiting.discard(pid)
        if pid == self._inner:
            self._inner_usage = usage
        else:
            self._usage.append(usage)
        if pid == self._main:
            self._main_status = status
            self._read_status()
            self._await_inner()

    def _await_inner(self) -> None:
        """bwrap exits before its PID 1 is gone; then that is a child of this subreaper, if bwrap did not reap it."""
        if self._inner is None or self._kept:
            return
        try:
            os.waitid(os.P_PID, self._inner, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        self.waiting.add(self._inner)
        proctree.send(self._inner, signal.SIGKILL)

    @property
    def may_have_strays(self) -> bool:
        """Whether processes may exist that this job knows nothing of: its owner died before it could tell."""
        if self._main_status is None:
            return False
        return self._read_report() is None if self._kept else self._inner is None

    def adopt(self, strays: list[int]) -> None:
        """Orphans that came to the spawner: this job ends when they have."""
        self.waiting.update(strays)
        self._kill()

    # What is left

    def _read_status(self) -> None:
        """Take in what bwrap, or the child before it, wrote: one JSON object on each complete line.

        Without a PID namespace a command can trace its bwrap and make it write anything, so nothing is taken on trust.
        """
        *lines, self._status_text = (self._status_text + _read_available(self._status_fd)).split(b"\n")
        for line in lines:
            with contextlib.suppress(ValueError, RecursionError):
                document = wire.unpack(line)
                if isinstance(document, dict):
                    self._documents.update(document)
        if self._inner is None and not self._kept:
            inner = self._documents.get("child-pid")
            self._inner = inner if isinstance(inner, int) else None

    def _read_report(self) -> dict[str, Any] | None:
        """The keeper's last word; ``None`` when it was killed before it."""
        if self._report is None and (text := _read_available(self._report_fd)):
            self._report = wire.unpack(text)
        return self._report

    def facts(self) -> wire.Facts:
        """Everything the worker needs for a verdict."""
        documents = self._documents
        set_up = self._set_up()
        exit_code = documents.get("exit-code")
        report = self._read_report() if self._kept else {"status": self._main_status, **self._measured()}
        facts = {
            "cause": self.cause,
            "exit_code": exit_code if isinstance(exit_code, int) and 0 <= exit_code <= 255 else None,
            "set_up": set_up,
            "not_entered": ""
            if self._enter_fd < 0
            else _read_available(self._enter_fd).decode("ascii", "replace").strip(),
            "duration_ms": round(1000 * (time.monotonic() - self._started)),
            **(report or {"status": self._main_status}),
        }
        if set_up is not True:
            facts.update((name, documents.get(name)) for name in ("launch_error", "errno"))
        return facts

    def _measured(self) -> dict[str, int]:
        inner = [] if self._inner_usage is None else [self._inner_usage]
        measured = keeper.usage_facts([*self._usage, *inner])
        if inner:
            # bwrap outside was forked from this process, and the kernel counts that memory as its peak.
            measured["max_rss_bytes"] = inner[0].ru_maxrss * 1024
        return measured

    def _set_up(self) -> bool | None:
        """Whether bwrap took the byte that it takes when all is set up; ``None`` where it is not asked to."""
        if self._setup_fd < 0:
            return None
        os.set_blocking(self._setup_fd, False)
        try:
            return os.read(self._setup_fd, 1) == b""
        except BlockingIOError:
            return True

    def close(self) -> None:
        for fd in (self._status_fd, self._setup_fd, self._report_fd, self._enter_fd):
            if fd >= 0:
                os.close(fd)
        self.control.close()


def _read_available(fd: int) -> bytes:
    chunks = []
    with contextlib.suppress(BlockingIOError):
        while chunk := os.read(fd, _STATUS_READ_BYTES):
            chunks.append(chunk)
    return b"".join(chunks)
