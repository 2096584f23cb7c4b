"""Other users and other processes for the tests of files."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from sandloom.execution.file_faults import FaultKind, FileFault

# Outside the range that sandboxes get by default: a reaper of another test must not meet these.
UID, OTHER_UID = (61001, 61002) if os.geteuid() == 0 else (os.geteuid(), os.geteuid())
GID, OTHER_GID = (61001, 61002) if os.geteuid() == 0 else (os.getegid(), os.getegid())
ROOTLESS = os.geteuid() != 0


def kind_of(call: Callable[[], object]) -> FaultKind | None:
    """How the call fails, None when it does not."""
    try:
        call()
    except FileFault as fault:
        return fault.kind
    return None


def in_child(action: Callable[[], object], uid: int | None = None) -> bool:
    """Runs ``action`` in a forked process, as ``uid``; whether it ended without an exception."""
    pid = fork(action, uid)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def fork(action: Callable[[], object], uid: int | None = None) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    with contextlib.suppress(BaseException):
        try:
            become(uid)
            action()
            code = 0
        except BaseException:
            traceback.print_exc()
    os._exit(code)


def become(uid: int | None) -> None:
    if uid is not None and os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)


@contextmanager
def program(source: str, *arguments: str, uid: int | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """A Python program that has said a line when the block begins; it ends when its standard input does."""
    process = subprocess.Popen(
        [sys.executable, "-c", source, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd="/",
        preexec_fn=lambda: become(uid),
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline()
        yield process
    finally:
        process.kill()
        process.communicate()


def tree_of(path: Path) -> dict[str, bytes]:
    """Relative names of all files below ``path`` and what they hold."""
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}
