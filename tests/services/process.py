"""A child process in its own session, whose output is kept in a file and can be waited for."""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import select
import signal
import subprocess
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from tests.services.account import Account

ROOT = Path(__file__).resolve().parents[2]
_NOBODY_CHANGES = Account(None, None)
_live: weakref.WeakSet[Process] = weakref.WeakSet()


class NotReady(AssertionError):
    """The process ended, or said nothing of the kind in time; the message carries the end of its log."""


class Process:
    """Started by the constructor; every way out of the test run ends it with all of its process group.

    ``env`` is the whole environment (default: ``PATH``, ``HOME`` and ``LANG`` of this process), ``cwd`` defaults to
    the checkout. Standard output and error both go to ``log_path``.
    """

    def __init__(
        self,
        argv: Sequence[str | os.PathLike[str]],
        *,
        log_path: Path,
        env: Mapping[str, str] | None = None,
        cwd: Path = ROOT,
        account: Account = _NOBODY_CHANGES,
        stdin: bytes | None = None,
    ) -> None:
        self.argv = [os.fspath(part) for part in argv]
        self.log_path = log_path
        self._seen = bytearray()
        self._changed = threading.Condition()
        self._exited = False
        self._popen = subprocess.Popen(
            self.argv,
            env=dict(base_environment() if env is None else env),
            cwd=cwd,
            stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            user=account.uid,
            group=account.gid,
            extra_groups=None if account.uid is None else [],
        )
        assert self._popen.stdout is not None
        self._log = log_path.open("ab", buffering=0)
        # Two threads read it, and neither may wait for what the other one has taken.
        os.set_blocking(self._popen.stdout.fileno(), False)
        _live.add(self)
        self._pump_thread = threading.Thread(target=self._pump, name=f"log of {self.pid}", daemon=True)
        self._pump_thread.start()
        threading.Thread(target=self._watch_exit, name=f"exit of {self.pid}", daemon=True).start()
        if stdin is not None and self._popen.stdin is not None:
            self._popen.stdin.write(stdin)
            self._popen.stdin.close()

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def running(self) -> bool:
        with self._changed:
            return not self._exited

    @property
    def returncode(self) -> int | None:
        return self._popen.poll() if not self.running else None

    def output(self) -> str:
        with self._changed:
            return self._seen.decode("utf-8", "replace")

    def mark(self) -> int:
        """A position in the output; given to ``wait_for_output`` it hides what came before."""
        with self._changed:
            return len(self._seen)

    def wait_for_output(self, pattern: str, *, timeout_seconds: float = 120, after: int = 0) -> re.Match[bytes]:
        """The first match of the regular expression; raises ``NotReady`` at the end of the process or of the time."""
        regex = re.compile(pattern.encode())
        deadline = time.monotonic() + timeout_seconds
        with self._changed:
            while True:
                match = regex.search(self._seen, after)
                if match:
                    return match
                remaining = deadline - time.monotonic()
                if self._exited or remaining <= 0:
                    raise NotReady(self._complaint(f"no output like {pattern!r}"))
                self._changed.wait(remaining)

    def send_signal(self, number: int) -> None:
        """Sends a signal to the process alone; one that has ended is left in peace."""
        if self.running:
            self._popen.send_signal(number)

    def wait(self, timeout_seconds: float = 120) -> int:
        """The return code (negative: the signal); raises ``NotReady`` when it still runs after the time."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._exited, timeout_seconds):
                raise NotReady(self._complaint(f"still running after {timeout_seconds} s"))
        return self._popen.wait()

    def kill(self) -> int:
        """SIGKILL for the process alone, as a crash would be; what it leaves behind is the test's subject."""
        self.send_signal(signal.SIGKILL)
        return self.wait()

    def stop(self, number: int = signal.SIGTERM, timeout_seconds: float = 60) -> int:
        """Asks it to end, then ends its whole process group; returns the return code."""
        self.send_signal(signal.SIGCONT)
        self.send_signal(number)
        with self._changed:
            self._changed.wait_for(lambda: self._exited, timeout_seconds)
        if self in _live:
            self._end_group()
            _live.discard(self)
        code = self.wait()
        self._pump_thread.join(timeout=5)
        return code

    def _end_group(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    def _pump(self) -> None:
        assert self._popen.stdout is not None
        readable = select.poll()
        readable.register(self._popen.stdout, select.POLLIN)
        while readable.poll():
            with self._changed:
                if not self._take():
                    self._popen.stdout.close()
                    self._log.close()
                    return

    def _take(self) -> bool:
        """What is in the pipe; False once nobody can write to it any more. The caller holds the lock."""
        assert self._popen.stdout is not None
        try:
            # More than a pipe holds.
            chunk = os.read(self._popen.stdout.fileno(), 1 << 20)
        except BlockingIOError:
            return True
        self._log.write(chunk)
        self._seen += chunk
        self._changed.notify_all()
        return bool(chunk)

    def _watch_exit(self) -> None:
        # WNOWAIT leaves the zombie in place, so the group's number cannot be reused before it is ended.
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        with self._changed:
            # Whoever waits for the end finds all that was said before it.
            if self._popen.stdout is not None and not self._popen.stdout.closed:
                self._take()
            self._exited = True
            self._changed.notify_all()

    def _complaint(self, what: str) -> str:
        state = "ended" if self._exited else "runs"
        tail = bytes(self._seen[-4000:]).decode("utf-8", "replace")
        return f"{self.argv[0]} (pid {self.pid}, {state}): {what}; its log ends:\n{tail}"

    def __enter__(self) -> Process:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def base_environment(**extra: str) -> dict[str, str]:
    """A small environment for children: nothing of the developer's own settings leaks into a test."""
    names = ("PATH", "HOME", "LANG", "LC_ALL", "TZ")
    return {name: os.environ[name] for name in names if name in os.environ} | extra


@atexit.register
def stop_everything() -> None:
    """Ends whatever is still running; called at the end of the run and at interpreter exit."""
    for process in list(_live):
        process._end_group()
        _live.discard(process)
