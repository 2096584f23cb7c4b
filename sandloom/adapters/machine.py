"""A sandbox as agent frameworks expect one: commands and files by paths of the machine, and exceptions of Python."""

from __future__ import annotations

import errno
import math
import os
import posixpath
import shlex
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import anyio
import anyio.to_thread

from sandloom.adapters.scripts import AROUND, READ, STAGED, WRITE
from sandloom.errors import EnvironmentRefused, ParallelLimit, QueueFull, SandloomError, WorkerLost
from sandloom.ids import new_id
from sandloom.sdk import Process, Result, Sandbox

WORKSPACE = "/workspace"
#: The longest time that the service gives a command.
MAX_TIMEOUT_SECONDS = 86_400
#: What a call carries; more goes through a file of the workspace.
_INLINE_STDIN_BYTES = 1 << 20
_INLINE_ARGV_CHARS = 65_536
_INLINE_ARGUMENTS = 200
#: Of a file that is read by its output, which every sensible deployment keeps whole.
_INLINE_READ_BYTES = 1 << 20
#: A command that found no room is offered again for so long.
_ROOM_SECONDS = 60.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Done:
    """How a command ended. ``exit_code`` is 128 + n after signal n; output is cut when ``truncated``."""

    exit_code: int
    stdout: bytes
    stderr: bytes
    timed_out: bool
    truncated: bool

    @property
    def text(self) -> str:
        """Both streams, standard output first."""
        return (self.stdout + self.stderr).decode("utf-8", "replace")


class Machine:
    """Every command finds /tmp as the one before left it, and may run beside others. What it leaves running ends
    with it. Raises SandloomError where the service fails; what a command does is a result."""

    def __init__(self, box: Sandbox, *, labels: Mapping[str, str] | None = None) -> None:
        self.box = box
        self._labels = dict(labels or {})

    def run(
        self,
        argv: Sequence[str],
        *,
        cwd: str = WORKSPACE,
        env: Mapping[str, str] | None = None,
        stdin: bytes = b"",
        timeout: float | None = None,
    ) -> Done:
        """Run a program to its end. A relative ``cwd`` is below /workspace; ``timeout`` in seconds, the deployment's
        default unless given."""
        return _done(self._start(argv, cwd, env, stdin, timeout))

    async def arun(
        self,
        argv: Sequence[str],
        *,
        cwd: str = WORKSPACE,
        env: Mapping[str, str] | None = None,
        stdin: bytes = b"",
        timeout: float | None = None,
    ) -> Done:
        """``run`` beside an event loop. When it is cancelled, the command is ended."""
        with anyio.CancelScope(shield=True):
            process = await in_thread(lambda: self._start(argv, cwd, env, stdin, timeout))
        try:
            return await in_thread(lambda: _done(process), abandon=True)
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                await in_thread(process.cancel)
            raise

    def read(self, path: str, *, max_bytes: int = 1 << 40) -> bytes:
        """The content of a file; links are followed. Raises FileNotFoundError, IsADirectoryError, PermissionError, and
        OSError with EFBIG for one of more than ``max_bytes``."""
        stage = _stage()
        arguments = [absolute(path), str(_INLINE_READ_BYTES), stage, str(max_bytes)]
        done = self.run(["sh", "-c", READ, "sh", *arguments])
        if done.exit_code != STAGED:
            return _checked(done, path).stdout
        try:
            with tempfile.TemporaryDirectory() as directory:
                self.box.files.download(stage, Path(directory, "content"))
                return Path(directory, "content").read_bytes()
        finally:
            self.box.files.delete(stage)

    def write(self, path: str, content: bytes) -> None:
        """Make or change a file, and the directories above it. Raises IsADirectoryError, NotADirectoryError,
        PermissionError, and OSError when the disk is full."""
        _checked(self.run(["sh", "-c", WRITE, "sh", absolute(path)], stdin=content), path)

    def _start(
        self,
        argv: Sequence[str],
        cwd: str,
        env: Mapping[str, str] | None,
        stdin: bytes,
        timeout: float | None,
    ) -> Process:
        words, staged = list(argv), ""
        given, inside = dict(env or {}), dict[str, str]()
        seconds = None if timeout is None else min(max(1, math.ceil(timeout)), MAX_TIMEOUT_SECONDS)
        if len(stdin) > _INLINE_STDIN_BYTES:
            staged, stdin = self._put(stdin), b""
        if len(words) > _INLINE_ARGUMENTS or sum(map(len, words)) > _INLINE_ARGV_CHARS:
            words = ["sh", self._put(f'rm -f -- "$0"\nexec {shlex.join(words)}\n'.encode())]
        while True:
            outer = ["/usr/bin/env", *(f"{name}={value}" for name, value in inside.items())] if inside else []
            command = ["sh", "-c", AROUND, "sh", absolute(cwd), staged, *outer, *words]
            try:
                return self._admitted(command, given, stdin, seconds)
            except EnvironmentRefused as error:
                # The runtime's own names steer its programs too; inside, they steer this command alone.
                refused = {name for name in given if name in error.detail.replace(",", " ").split()}
                if not refused:
                    raise
                inside |= {name: given.pop(name) for name in refused}

    def _admitted(self, command: list[str], env: Mapping[str, str], stdin: bytes, seconds: int | None) -> Process:
        deadline = time.monotonic() + _ROOM_SECONDS
        while True:
            name = f"run-{new_id()}"
            try:
                return self.box.start(
                    command, timeout=seconds, env=env, stdin=stdin, scope=name, exec_id=name, labels=self._labels
                )
            except (ParallelLimit, QueueFull) as error:
                if time.monotonic() > deadline:
                    raise
                time.sleep(min(error.retry_after_seconds or 1, 5))

    def _put(self, content: bytes) -> str:
        path = _stage()
        self.box.files.write(path, content)
        return path


async def in_thread(call: Callable[[], T], *, abandon: bool = False) -> T:
    """The result of a blocking call, in a thread of its own: no bound on threads that other code shares."""
    return await anyio.to_thread.run_sync(call, abandon_on_cancel=abandon, limiter=anyio.CapacityLimiter(1))


def absolute(path: str) -> str:
    """The path, below /workspace when relative, without ``.`` and ``..``."""
    whole = posixpath.normpath(posixpath.join(WORKSPACE, path))
    return "/" + whole.lstrip("/")


def _stage() -> str:
    return f"{WORKSPACE}/.sandloom-{new_id()}"


def _done(process: Process) -> Done:
    result = process.wait(encoding="base64")
    return Done(
        exit_code=_exit_code(result),
        stdout=result.stdout_bytes,
        stderr=result.stderr_bytes,
        timed_out=result.status == "TIMED_OUT",
        truncated=result.truncated,
    )


def _exit_code(result: Result) -> int:
    if result.status == "WORKER_LOST":
        raise WorkerLost(result.detail, exec_id=result.exec_id)
    if result.exit_code is not None:
        return result.exit_code
    if result.signal is not None:
        return 128 + result.signal
    if result.status == "TIMED_OUT":
        return 124
    if result.status == "CANCELLED":
        return 130
    raise SandloomError.from_problem({"code": result.error, "detail": result.detail})


def _checked(done: Done, path: str) -> Done:
    """Raises what the exit code of READ or WRITE means."""
    if done.exit_code == 0:
        return done
    code = done.exit_code if done.exit_code in errno.errorcode else errno.EIO
    said = done.stderr.decode("utf-8", "replace").strip()
    raise OSError(code, said or os.strerror(code), path)
