"""The spawner's event loop. Single-threaded, so that bwrap's ``--die-with-parent`` means this process."""

from __future__ import annotations

import contextlib
import gc
import os
import resource
import select
import signal
import socket
import time
from typing import Any, NoReturn

from . import linux, proctree, wire
from .job import Job
from .mounts import MountTable
from .native import Native, load

# How late a lapsed lease or a vanished worker may be noticed; only counts while commands run.
_TICK_SECONDS = 1.0
_RESERVED_FDS = 10


class Server:
    """``serve`` returns when the worker is gone and nothing of any command is left."""

    def __init__(self, main: socket.socket, native: Native | None) -> None:
        self._native = native
        self._mounts = MountTable()
        self._main = main
        self._main.setblocking(False)
        self._worker = os.getppid()
        self._abandoned = False
        self._lease: float | None = None
        self._by_pid: dict[int, list[Job]] = {}
        self._by_control: dict[int, Job] = {}
        self._null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
        self._wake, wake_write = socket.socketpair()
        self._wake.setblocking(False)
        wake_write.setblocking(False)
        self._wake_write = wake_write
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake_write.fileno(), warn_on_full_buffer=False)
        self._epoll = select.epoll()
        self._epoll.register(self._main, select.EPOLLIN)
        self._epoll.register(self._wake, select.EPOLLIN)

    def serve(self) -> None:
        while not (self._abandoned and not self._by_control):
            for fd, _ in self._epoll.poll(self._timeout_seconds()):
                # An event may be stale: its descriptor closed, and the number in use again, within this very batch.
                # So nothing is concluded from the event; each reader asks its own socket and accepts "nothing there".
                if fd == self._main.fileno():
                    self._read_main()
                elif fd == self._wake.fileno():
                    self._reap()
                elif fd in self._by_control:
                    self._read_control(self._by_control[fd])
            self._expire()

    # Requests

    def _read_main(self) -> None:
        while True:
            try:
                message, fds, _, _ = socket.recv_fds(self._main, wire.MAX_DATAGRAM_BYTES, wire.MAX_FDS)
            except BlockingIOError:
                return
            except ConnectionError:
                message, fds = b"", []
            if not message:
                self._abandon()
                return
            if message[:1] == wire.LEASE:
                self._lease = float(wire.unpack(message[1:]))
            else:
                self._spawn(message, fds)

    def _spawn(self, message: bytes, fds: list[int]) -> None:
        if len(fds) < 3:
            # This process has no descriptor left to receive them; the worker sees the end of the command's socket.
            for fd in fds:
                os.close(fd)
            return
        request, (control_fd, stdout, stderr), stdin = wire.read_body(message, fds)
        control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, 0, fileno=control_fd)
        control.setblocking(False)
        job = Job(request, control)
        try:
            if self._lease_lapsed():
                self._refuse(job, {"cause": "lease", "launch_error": "the worker's lease has lapsed"})
                return
            self._see_files(request)
            pid = job.launch(self._null if stdin is None else stdin, stdout, stderr, self._native)
        except OSError as error:
            self._refuse(job, {"cause": None, "launch_error": f"fork: {error.strerror}", "errno": error.errno})
            return
        finally:
            for fd in (stdout, stderr, *([] if stdin is None else [stdin])):
                os.close(fd)
        self._by_pid[pid] = [job]
        self._by_control[control_fd] = job
        self._epoll.register(control_fd, select.EPOLLIN)

    def _see_files(self, request: dict[str, Any]) -> None:
        request["main_fd"] = self._main.fileno()
        self._mounts.check(request["fixed_sources"], request["own_sources"])
        # Control groups are not in the small table.
        request["attach"] = [self._mounts.outer(path) for path in request["attach"]]
        if request["kill_group"]:
            request["kill_group"] = self._mounts.outer(request["kill_group"])

    def _refuse(self, job: Job, facts: wire.Facts) -> None:
        self._answer(job, facts)
        job.close()

    def _read_control(self, job: Job) -> None:
        """A message asks for the end, and so does the end of the socket: nobody is left to tell."""
        while True:
            try:
                message = job.control.recv(16)
            except BlockingIOError:
                return
            except ConnectionError:
                message = b""
            job.end("cancelled", at_once=message == wire.KILL)
            if not message:
                self._unwatch(job)
                return

    # Endings

    def _reap(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._wake.recv(4096):
                pass
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            for job in self._by_pid.pop(pid, ()):
                job.reaped(pid, status, usage)
                self._after_reaping(job)

    def _after_reaping(self, job: Job) -> None:
        if not job.waiting and job.may_have_strays:
            # Children of this process that no job knows are orphans of a bwrap or keeper that died too early.
            strays = [pid for pid in proctree.children_of(os.getpid()) if pid not in self._by_pid]
            if strays:
                job.adopt(strays)
        for pid in job.waiting:
            # An orphan may be awaited by two jobs whose owners died together.
            waiters = self._by_pid.setdefault(pid, [])
            if job not in waiters:
                waiters.append(job)
        if not job.waiting:
            self._finish(job)

    def _finish(self, job: Job) -> None:
        del self._by_control[job.control.fileno()]
        self._unwatch(job)
        self._answer(job, job.facts())
        job.close()

    def _unwatch(self, job: Job) -> None:
        # Explicit, because a child that has not reached its exec yet keeps the open socket, and so the interest, alive.
        with contextlib.suppress(FileNotFoundError):
            self._epoll.unregister(job.control.fileno())

    @staticmethod
    def _answer(job: Job, facts: wire.Facts) -> None:
        # The worker may have hung up; then there is nobody to tell.
        with contextlib.suppress(OSError):
            job.control.send(wire.pack(facts))

    def _abandon(self) -> None:
        if self._abandoned:
            return
        self._abandoned = True
        self._epoll.unregister(self._main)
        for job in list(self._by_control.values()):
            job.end("abandoned", at_once=True)

    # Time

    def _lease_lapsed(self) -> bool:
        return self._lease is not None and time.clock_gettime(time.CLOCK_BOOTTIME) >= self._lease

    def _timeout_seconds(self) -> float | None:
        if not self._by_control:
            return None
        timeout = _TICK_SECONDS
        now = time.monotonic()
        for job in self._by_control.values():
            if job.deadline is not None:
                timeout = min(timeout, job.deadline - now)
        if self._lease is not None:
            timeout = min(timeout, self._lease - time.clock_gettime(time.CLOCK_BOOTTIME))
        # Rounded up by epoll to milliseconds; never negative, which would mean forever.
        return max(timeout, 0.001)

    def _expire(self) -> None:
        if not self._by_control:
            return
        if os.getppid() != self._worker:
            self._abandon()
        lapsed = self._lease_lapsed()
        now = time.monotonic()
        for job in list(self._by_control.values()):
            if lapsed and job.cause is None:
                job.end("lease")
            job.expire(now)


def main(main_fd: int, library: str) -> NoReturn:
    """The process: ``main_fd`` is the socket to the worker; other inherited descriptors are only kept open.

    ``library`` is the path of the native helper, or empty.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE, signal.SIGXFSZ):
        # A signal to the whole group or unit must not end this process before its commands: the worker decides. And
        # handled, not ignored as Python does with the last two: an ignored signal stays ignored in every command.
        signal.signal(number, lambda *_: None)
    while (fd := os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)) < _RESERVED_FDS:
        pass
    os.close(fd)
    linux.reset_thread_signals()
    linux.become_subreaper()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    main_socket = socket.socket(fileno=main_fd)
    os.set_inheritable(main_fd, False)
    native = load(library) if library else None
    gc.collect()
    gc.freeze()
    Server(main_socket, native).serve()
    os._exit(0)
