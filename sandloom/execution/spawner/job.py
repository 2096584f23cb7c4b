"""One command inside the spawner: its processes, how it is ended, and the facts that are left of it."""

from __future__ import annotations

import os
import resource
import signal
import socket
import time
from typing import Any

from . import child, keeper, proctree, wire

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
        self._status_text = b""
        self._main_status: int | None = None
        self._usage: list[resource.struct_rusage] = []
        self._inner_usage: resource.struct_rusage | None = None

    def launch(self, stdin: int, stdout: int, stderr: int) -> int:
        """Fork; the caller closes the three descriptors. Returns the pid to reap. Raises ``OSError``."""
        self._status_fd, status_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        setup_write = -1
        if self._kept:
            self._setup_fd, setup_write = os.pipe2(os.O_CLOEXEC)
            os.write(setup_write, b"\0")
        parent = os.getpid()
        try:
            self._main = os.fork()
            if self._main == 0:
                start = keeper.run if self._kept else child.start
                start(self.request, (stdin, stdout, stderr, status_write, self._setup_fd), parent)
        finally:
            os.close(status_write)
            if setup_write >= 0:
                os.close(setup_write)
        self.waiting.add(self._main)
        if self.request["timeout_seconds"] is not None:
            self.deadline = self._started + self.request["timeout_seconds"]
        return self._main

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
            return
        inner = self._find_inner()
        if inner is not None:
            proctree.send(inner, signal.SIGKILL)
        else:
            proctree.kill(proctree.descendants(self.waiting))
        for pid in self.waiting:
            proctree.send(pid, signal.SIGKILL)

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
        process = proctree.read_process(self._inner)
        if process is not None and process.parent == os.getpid():
            self.waiting.add(self._inner)
            proctree.send(self._inner, signal.SIGKILL)

    @property
    def may_have_strays(self) -> bool:
        """Whether processes may exist that this job knows nothing of: its owner died before it could tell."""
        if self._main_status is None:
            return False
        if self._kept:
            return b'"keeper"' not in self._status_text
        return self._inner is None

    def adopt(self, strays: list[int]) -> None:
        """Orphans that came to the spawner: this job ends when they have."""
        self.waiting.update(strays)
        self._kill()

    # What is left

    def _read_status(self) -> None:
        while True:
            try:
                chunk = os.read(self._status_fd, _STATUS_READ_BYTES)
            except BlockingIOError:
                break
            if not chunk:
                break
            self._status_text += chunk
        if self._inner is None and not self._kept:
            self._inner = self._documents().get("child-pid")

    def _documents(self) -> dict[str, Any]:
        merged: dict[str, Any] = {}
        for line in self._status_text.splitlines():
            merged.update(wire.unpack(line))
        return merged

    def facts(self) -> wire.Facts:
        """Everything the worker needs for a verdict."""
        documents = self._documents()
        kept = documents.get("keeper")
        usages = [*self._usage, *([self._inner_usage] if self._inner_usage else [])]
        usage = {name: kept[name] for name in keeper.USAGE_FACTS} if kept else keeper.usage_facts(usages)
        if self._inner_usage is not None:
            # bwrap outside was forked from this process, and the kernel counts that memory as its peak.
            usage["max_rss_bytes"] = self._inner_usage.ru_maxrss * 1024
        return {
            "cause": self.cause,
            "exit_code": documents.get("exit-code"),
            "status": kept["status"] if kept else self._main_status,
            "launch_error": documents.get("launch_error"),
            "errno": documents.get("errno"),
            "set_up": self._set_up(),
            "duration_ms": round(1000 * (time.monotonic() - self._started)),
            **usage,
        }

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
        for fd in (self._status_fd, self._setup_fd):
            if fd >= 0:
                os.close(fd)
        self.control.close()
