"""``Spec`` in, ``Verdict`` out: the one way in which commands are run."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from sandloom.execution import argv, etc, failure, limits
from sandloom.execution.cgroups import CommandGroup, Groups
from sandloom.execution.disk import DiskBudgets, Watched
from sandloom.execution.machine import Machine, Machines, Seat
from sandloom.execution.notes import Notes
from sandloom.execution.output import Sink, Stream
from sandloom.execution.process import Incarnation, Spawner
from sandloom.execution.spawner import mounts, wire
from sandloom.execution.spec import BudgetsUnavailable, LaunchFault, Plan, SpawnerUnavailable, Spec, Verdict

__all__ = ["Handle", "Runner", "Sink"]

_MAX_FACTS_BYTES = 64 * 1024
# How long a handle waits for the burial of a dead spawner; what it left is killed by then or the machine is stuck.
_BURIAL_SECONDS = 30
_SAID_TO_THE_CALLER = {
    LaunchFault.PROGRAM_NOT_FOUND,
    LaunchFault.PROGRAM_NOT_EXECUTABLE,
    LaunchFault.ARGUMENTS_TOO_LONG,
    LaunchFault.CWD_UNAVAILABLE,
}


class Runner:
    """Starts commands on a spawner. Thread-safe; of sandboxes it holds only their cgroups, in ``groups``."""

    def __init__(self, spawner: Spawner, groups: Groups | None = None, disk: DiskBudgets | None = None) -> None:
        self._spawner = spawner
        self._groups = groups
        self._disk = disk
        self._machines = Machines()
        self._identities: dict[tuple[str, int, int, str], str] = {}
        self._plan_sources: tuple[Plan, list[mounts.Source]] | None = None

    def start(self, spec: Spec, sink: Sink) -> Handle:
        """Start ``spec``; its output goes to ``sink('stdout' | 'stderr', chunk)`` from the thread inside ``wait``, and
        so does each of its ``notes`` to ``sink('note', data)``.

        Raises ``SpecInvalid``, ``BudgetsUnavailable``, ``DiskBudgetReached`` and ``SpawnerUnavailable``. A program that
        is missing, or isolation that cannot be set up, is a ``Verdict``.
        """
        self._admit_to_disk(spec)
        with contextlib.ExitStack() as theirs, contextlib.ExitStack() as ours:
            seat = self._seat(spec)
            ours.callback(seat.leave)
            guard = _Guard(sink)
            notes = _notes(spec, guard)
            if notes is not None:
                ours.callback(notes.close)
            fifo = "" if notes is None else notes.path
            line = argv.build(spec, self._identity(spec), seat.machine, fifo)
            group = self._group(spec)
            if group is not None:
                ours.callback(group.finish)
            body = _request(spec, line, group, seat.machine, self._fixed_sources(spec.plan), fifo)
            control, their_control = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            ours.callback(control.close)
            theirs.callback(their_control.close)
            streams = []
            fds = [their_control.fileno()]
            for name in ("stdout", "stderr"):
                read_end, write_end = os.pipe()
                theirs.callback(os.close, write_end)
                stream = Stream(name, read_end, spec.max_output_bytes, guard)
                ours.callback(stream.close)
                streams.append(stream)
                fds.append(write_end)
                if spec.plan.uid_separation:
                    # Programs open /dev/stdout by name, which the owner of the pipe alone may do.
                    os.fchown(write_end, spec.uid, spec.gid)
            stdin_fd = None
            if spec.stdin is not None:
                stdin_fd = _stdin(spec.stdin)
                theirs.callback(os.close, stdin_fd)
            incarnation = self._spawner.spawn(body, fds, stdin_fd)
            handle = Handle(spec, control, streams, notes, guard, incarnation, seat, group)
            ours.callback(handle.close)
            if self._disk is not None and spec.budgets.disk:
                handle.disk = self._disk.watch(spec.group, spec.home_dirs, spec.budgets, handle.end_at_disk_budget)
            ours.pop_all()
        return handle

    def forget(self, group: str) -> None:
        """A sandbox is gone, and its cgroup with it."""
        if self._groups is not None:
            self._groups.forget(group)
        if self._disk is not None:
            self._disk.forget(group)

    def _admit_to_disk(self, spec: Spec) -> None:
        if not spec.budgets.disk:
            return
        if self._disk is None:
            raise BudgetsUnavailable("this worker holds no disk budgets")
        self._disk.admit(spec.group, spec.home_dirs, spec.budgets)

    def _seat(self, spec: Spec) -> Seat:
        try:
            return self._machines.seat(spec)
        except OSError as error:
            raise BudgetsUnavailable(f"what the command would see of the machine cannot be made: {error}") from error

    def has_run(self, uid: int) -> bool:
        """Whether a command may have been started as ``uid`` since it was forgotten last."""
        return any(key[1] == uid for key in list(self._identities))

    def forget_uid(self, uid: int) -> None:
        """Nothing runs as ``uid`` any more, and the next sandbox that has it begins anew."""
        for key in [key for key in list(self._identities) if key[1] == uid]:
            self._identities.pop(key, None)
            etc.forget_identities(Path(key[0]), uid)

    def _group(self, spec: Spec) -> CommandGroup | None:
        wanted = spec.budgets.controllers | spec.own_budgets.controllers
        if not wanted:
            return None
        if self._groups is None:
            raise BudgetsUnavailable("this worker holds no budgets")
        return self._groups.command(spec.group, spec.budgets, spec.own_budgets)

    def _fixed_sources(self, plan: Plan) -> list[mounts.Source]:
        known = self._plan_sources
        if known is None or known[0] is not plan:
            paths = [mount.source for mount in plan.readonly_mounts if not mount.link]
            known = (
                plan,
                _sources(
                    [*paths, plan.etc_dir, plan.identity_dir, *filter(None, [plan.resolv_conf, plan.toolchain_dir])]
                ),
            )
            self._plan_sources = known
        return known[1]

    def _identity(self, spec: Spec) -> str:
        key = (spec.plan.identity_dir, spec.uid, spec.gid, spec.hostname)
        known = self._identities.get(key)
        if known is None:
            known = str(etc.identity_dir(Path(spec.plan.identity_dir), spec.uid, spec.gid, spec.hostname))
            self._identities[key] = known
        return known


def _sources(paths: Iterable[str]) -> list[mounts.Source]:
    """What each path is in this process's mount table; what is not there is left to bwrap to tell."""
    found: list[mounts.Source] = []
    for path in paths:
        with contextlib.suppress(OSError):
            info = os.stat(path)
            found.append((path, info.st_dev, info.st_ino))
    return found


def _request(
    spec: Spec,
    line: argv.CommandLine,
    group: CommandGroup | None,
    machine: Machine,
    fixed_sources: list[mounts.Source],
    fifo: str,
) -> bytes:
    return wire.pack(
        {
            "argv": line.argv,
            "env": line.env,
            "uid": spec.uid,
            "gid": spec.gid,
            "switch_user": spec.plan.uid_separation,
            "pid_namespace": spec.plan.pid_namespace,
            "rlimits": limits.rlimits(spec.limits, uid_separation=spec.plan.uid_separation),
            "timeout_seconds": spec.timeout_seconds,
            "grace_seconds": spec.terminate_grace_seconds,
            "fixed_sources": fixed_sources,
            "own_sources": _sources(filter(None, (*spec.home_dirs.all, *(tree for _, tree in spec.templates), fifo))),
            "attach": [] if group is None else group.attach,
            "open": _files_to_open(spec),
            "enters": line.enters,
            "cpus": machine.cpus,
            "kill_group": "" if group is None else group.kill,
        }
    )


def _files_to_open(spec: Spec) -> list[tuple[str, int]]:
    return [] if spec.plan.seccomp_file is None else [(spec.plan.seccomp_file, argv.SECCOMP_FD)]


def _notes(spec: Spec, sink: Sink) -> Notes | None:
    if not spec.plan.notes_dir:
        return None
    try:
        return Notes(spec.plan.notes_dir, spec.gid if spec.plan.uid_separation else None, sink)
    except OSError as error:
        raise SpawnerUnavailable(f"the FIFO for notes cannot be made: {error}") from error


def _stdin(data: bytes) -> int:
    fd = os.memfd_create("stdin", os.MFD_CLOEXEC)
    with open(fd, "wb", closefd=False) as stream:
        stream.write(data)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


class _Guard:
    """The caller's sink; what it raises first is kept, and everything after that is discarded."""

    def __init__(self, sink: Sink) -> None:
        self.error: Exception | None = None
        self.on_error: Callable[[], None] = lambda: None
        self._sink = sink

    def __call__(self, name: str, chunk: bytes) -> None:
        if self.error is not None:
            return
        try:
            self._sink(name, chunk)
        except Exception as error:
            self.error = error
            self.on_error()


class Handle:
    """One running command. ``wait`` in one thread; ``cancel`` from any."""

    def __init__(
        self,
        spec: Spec,
        control: socket.socket,
        streams: list[Stream],
        notes: Notes | None,
        guard: _Guard,
        incarnation: Incarnation,
        seat: Seat,
        group: CommandGroup | None = None,
    ) -> None:
        self._spec = spec
        self._seat = seat
        self._group = group
        self._guard = guard
        guard.on_error = self.cancel
        self._control = control
        self._streams = streams
        self._notes = notes
        self._incarnation = incarnation
        self._lock = threading.Lock()
        self._verdict: Verdict | None = None
        self._lasting: tuple[float, Callable[[], object]] | None = None
        self._cancelled = False
        self._disk_reached = ""
        self.disk = Watched(lambda: None, lambda: "")

    def cancel(self) -> None:
        """TERM, grace, KILL to everything the command started. Idempotent; after the end it does nothing."""
        with self._lock, contextlib.suppress(OSError):
            if not self._cancelled:
                self._cancelled = True
                self._control.send(wire.CANCEL)

    def end_at_disk_budget(self, detail: str) -> None:
        """KILL without grace, in which the command would go on to write; the verdict says ``disk``. Idempotent."""
        with self._lock, contextlib.suppress(OSError):
            if not self._cancelled:
                self._cancelled = True
                self._disk_reached = detail
                self._control.send(wire.KILL)

    def wait(self, lasting: Callable[[], object] | None = None, after_seconds: float = 0.0) -> Verdict:
        """Pass on output until the command is over. No process of it is alive when this returns.

        ``lasting`` is called once, between two pieces of output, if the command is not over ``after_seconds`` from now.
        What ``sink`` raises cancels the command and is raised here after its end.
        """
        if self._verdict is None:
            self._lasting = None if lasting is None else (time.monotonic() + after_seconds, lasting)
            self._verdict = self._finish(self._pump())
            self.close()
        if self._guard.error is not None:
            raise self._guard.error
        return self._verdict

    def close(self) -> None:
        """Give the command up without waiting: it is ended like a cancelled one, its output is not read. Idempotent."""
        with self._lock:
            self._control.close()
        for stream in self._streams:
            stream.close()
        if self._notes is not None:
            self._notes.close()
        if self._group is not None:
            self._group.abandon()
        self._seat.leave()
        self.disk.stop()

    def _pump(self) -> bytes:
        """Output to the sink until the spawner answers; returns its datagram, empty when it died."""
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        by_fd = {stream.fd: stream for stream in self._streams}
        for fd in by_fd:
            poll.register(fd, select.POLLIN)
        notes, reads_notes = self._notes, False
        while True:
            answered = False
            if notes is not None and not reads_notes and notes.pause_seconds == 0:
                poll.register(notes.fd, select.POLLIN)
                reads_notes = True
            for fd, _ in poll.poll(self._timeout_ms(reads_notes)):
                if fd == self._control.fileno():
                    answered = True
                elif notes is not None and fd == notes.fd:
                    notes.read()
                    poll.unregister(fd)
                    reads_notes = False
                elif not by_fd[fd].read():
                    poll.unregister(fd)
            if answered:
                return self._receive()
            for stream in self._streams:
                if stream.release_in_seconds == 0:
                    stream.release()
            if self._lasting is not None and time.monotonic() >= self._lasting[0]:
                call = self._lasting[1]
                self._lasting = None
                call()

    def _receive(self) -> bytes:
        # The first call may report that the spawner closed before it read a cancel; its answer is still queued then.
        for _ in range(2):
            with contextlib.suppress(ConnectionError):
                return self._control.recv(_MAX_FACTS_BYTES)
        return b""

    def _timeout_ms(self, reads_notes: bool) -> float | None:
        waits = [seconds for stream in self._streams if (seconds := stream.release_in_seconds) is not None]
        if self._notes is not None and not reads_notes:
            # Also when the pause has just ended: nothing else would have them read again.
            waits.append(self._notes.pause_seconds)
        if self._lasting is not None:
            waits.append(max(0.0, self._lasting[0] - time.monotonic()))
        # Rounded up by poll to milliseconds.
        return 1000 * min(waits) if waits else None

    def _finish(self, datagram: bytes) -> Verdict:
        """Take what is left in the pipes, without waiting for whoever may still hold them, and judge."""
        if not datagram:
            self._incarnation.buried.wait(_BURIAL_SECONDS)
        for stream in self._streams:
            stream.drain()
        if self._notes is not None:
            self._notes.drain()
        stderr = self._streams[1]
        group = None if self._group is None else self._group.finish()
        if datagram:
            verdict = failure.judge(
                wire.unpack(datagram),
                argv0=self._spec.argv[0],
                cwd=self._spec.cwd,
                cpu_seconds=self._spec.limits.cpu_seconds,
                stderr_head=stderr.head,
                group=group,
                disk_reached=self._disk_reached or self.disk.reached(),
            )
        else:
            verdict = failure.lost(f"the spawner of {self._spec.name} died")
        stderr.release(drop=verdict.error is not None)
        if verdict.error in _SAID_TO_THE_CALLER:
            stderr.say(f"sandloom: cannot start {self._spec.argv[0][:200]!r}: {verdict.detail}\n")
        return replace(verdict, truncated=any(stream.truncated for stream in self._streams))
