"""Ending what a dead spawner or an earlier life of the worker left behind."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from sandloom.execution.spawner import proctree

_PASS_SECONDS = 0.01
# The lines that are needed come first.
_STATUS_BYTES = 512


class ProcessesRemain(RuntimeError):
    """Processes that must be gone are still there after the time allowed."""


def kill_uid_range(start: int, end: int, *, timeout_seconds: float = 20) -> int:
    """Kill every process whose real, effective or saved uid lies in ``start..end`` (inclusive) until none is left.

    Returns how many different ones were met. Raises ``ProcessesRemain``. Only for a range this worker holds alone.
    """
    if start < 1 or end < start:
        raise ValueError("a range of uids starts at 1 or above and does not end before it starts")
    return _kill_until_none(lambda pid: _has_uid(pid, start, end), timeout_seconds)


def kill_bwraps_of(directory: str, *, timeout_seconds: float = 20) -> int:
    """The same without root: this user's bwrap processes that bind something below ``directory`` into a sandbox.

    Their PID namespaces go with them. Commands never match by what they name themselves: they run inside a namespace,
    below such a bwrap.
    """
    mark = os.fsencode(directory.rstrip("/") + "/")
    return _kill_until_none(lambda pid: _binds(pid, mark), timeout_seconds)


def _kill_until_none(matches: Callable[[int], bool], timeout_seconds: float) -> int:
    deadline = time.monotonic() + timeout_seconds
    seen: set[int] = set()
    while found := [pid for name in os.listdir("/proc") if name.isdigit() and matches(pid := int(name))]:
        seen.update(found)
        proctree.kill(found)
        if time.monotonic() > deadline:
            raise ProcessesRemain(f"{len(found)} processes do not end: {found[:10]}")
        time.sleep(_PASS_SECONDS)
    return len(seen)


def _has_uid(pid: int, start: int, end: int) -> bool:
    try:
        fd = os.open(f"/proc/{pid}/status", os.O_RDONLY | os.O_CLOEXEC)
        try:
            text = os.read(fd, _STATUS_BYTES)
        finally:
            os.close(fd)
    except OSError:
        return False
    state, _, rest = text.partition(b"\nState:\t")[2].partition(b"\nUid:")
    uids = rest.partition(b"\n")[0].split()
    return state[:1] not in b"ZX" and any(start <= int(uid) <= end for uid in uids[:3])


def _binds(pid: int, mark: bytes) -> bool:
    try:
        if os.stat(f"/proc/{pid}").st_uid != os.getuid():
            return False
        with open(f"/proc/{pid}/cmdline", "rb") as stream:
            words = stream.read().split(b"\0")
    except OSError:
        return False
    if os.path.basename(words[0]) != b"bwrap" or b"--json-status-fd" not in words:
        return False
    options = words[: words.index(b"--")] if b"--" in words else words
    return any(word.startswith(mark) for word in options)
