"""Reading, writing and removing cgroups as the directories that they are."""

from __future__ import annotations

import contextlib
import errno
import os
import time

from sandloom.execution.spawner import groups

# A kernel may take a moment to let go of processes that have been reaped, and no event tells when.
_RETRY_SECONDS = 0.005


def read(path: str) -> str | None:
    """The stripped text, ``None`` when there is no such file."""
    try:
        with open(path, "rb", buffering=0) as stream:
            return stream.read().decode("ascii", "replace").strip()
    except OSError:
        return None


def number(path: str) -> int | None:
    """The one number in a file, ``None`` when there is none."""
    text = read(path)
    return int(text) if text is not None and text.isdigit() else None


def counter(path: str, name: str) -> int:
    """The number after ``name`` in a file of such lines; 0 when it is not counted."""
    for line in (read(path) or "").splitlines():
        key, _, value = line.partition(" ")
        if key == name and value.isdigit():
            return int(value)
    return 0


def write(path: str, text: str) -> None:
    """Write to a file of the kernel, which cannot be made. Raises ``OSError`` with the path."""
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode("ascii"))
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from error
    finally:
        os.close(fd)


def kill_all(directory: str) -> None:
    """One pass of KILL to every process in the group and the groups below it."""
    kill_file = f"{directory}/{groups.KILL_FILE}"
    if os.path.exists(kill_file):
        groups.kill(kill_file)
        return
    for below, _, _ in os.walk(directory):
        groups.kill(f"{below}/cgroup.procs")


def remove(directory: str, *, timeout_seconds: float) -> bool:
    """Remove the group and those below it, ending what still runs there; whether it is gone."""
    deadline = time.monotonic() + timeout_seconds
    while True:
        # Looked at before the last attempt: a process that stood still meanwhile makes it all the same.
        late = time.monotonic() >= deadline
        if remove_empty(directory):
            return True
        kill_all(directory)
        if late:
            return False
        time.sleep(_RETRY_SECONDS)


def remove_empty(directory: str) -> bool:
    """Remove the group and those below it; ``False`` when one of them still holds a process."""
    with contextlib.suppress(FileNotFoundError):
        try:
            os.rmdir(directory)
        except OSError as error:
            if error.errno not in (errno.EBUSY, errno.ENOTEMPTY):
                raise
            below = [entry.path for entry in os.scandir(directory) if entry.is_dir(follow_symlinks=False)]
            kept = [path for path in below if not remove_empty(path)]
            if kept or not below:
                return False
            with contextlib.suppress(OSError):
                os.rmdir(directory)
            return not os.path.exists(directory)
    return True
