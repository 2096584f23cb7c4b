"""Against what there is only so much of. Programs with a ``bound`` are contained by that budget alone."""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import threading
import time

from .linux import call
from .program import Facts, Held, program

MIB = 1 << 20


def _fill(base: str, size_bytes: int) -> str | None:
    path, chunk = f"{base}/hostile-fill", bytes(MIB)
    try:
        with open(path, "wb", buffering=0) as stream:
            while stream.tell() < size_bytes:
                stream.write(chunk)
    finally:
        os.unlink(path)
    return f"{size_bytes // MIB} MiB"


@program("user")
def fills_tmp(facts: Facts) -> str | None:
    """Write more into /tmp than it may hold."""
    return _fill("/tmp", facts["tmpfs_bytes"] + MIB)


@program("user")
def fills_shared_memory(facts: Facts) -> str | None:
    """Write more into /dev/shm than it may hold."""
    return _fill("/dev/shm", facts["shm_bytes"] + MIB)


@program("user: an unlimited one")
def writes_a_huge_file(facts: Facts) -> str | None:
    """Write one file beyond the largest that is allowed."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with open("hostile-sparse", "wb", buffering=0) as stream:
        stream.seek(facts["max_file_size_bytes"])
        stream.write(b"x")
    os.unlink("hostile-sparse")
    return "a larger file"


@program("user", reaches="the disk below the workspace root: the limit is one of each file, not of all")
def fills_the_disk(facts: Facts) -> str | None:
    """Write 64 MiB in many files."""
    try:
        for number in range(64):
            with open(f"hostile-{number}", "wb") as stream:
                stream.write(bytes(MIB))
    finally:
        for number in range(64):
            if os.path.exists(f"hostile-{number}"):
                os.unlink(f"hostile-{number}")
    return "64 MiB"


@program("user", reaches="memory, where there is no memory budget", bound="memory")
def fills_the_memory(facts: Facts) -> str | None:
    """Touch 192 MiB of memory."""
    block = mmap.mmap(-1, 192 * MIB)
    for offset in range(0, len(block), mmap.PAGESIZE):
        block[offset] = 1
    return "192 MiB"


@program("user", reaches="memory beyond the size of /dev/shm, where there is no memory budget", bound="memory")
def fills_memory_files(facts: Facts) -> str | None:
    """Write 192 MiB into a file in memory, which no size of a file system bounds."""
    with open(os.memfd_create("hostile"), "wb", buffering=0) as stream:
        for _ in range(192):
            stream.write(bytes(MIB))
    return "192 MiB"


@program("user", reaches="memory beyond the size of /dev/shm, where there is no memory budget", bound="memory")
def fills_memory_segments(facts: Facts) -> str | None:
    """Attach and touch 192 MiB of System V segments."""
    libc = ctypes.CDLL(None)
    libc.shmat.restype = ctypes.c_void_p
    segment = call("shmget", 0, 192 * MIB, 0o600)
    address = libc.shmat(segment, None, 0)
    call("shmctl", segment, 0, None)
    ctypes.memset(ctypes.c_void_p(address), 1, 192 * MIB)
    return "192 MiB"


@program("root")
def locks_memory(facts: Facts) -> str | None:
    """Lock 64 MiB of memory, which the kernel then cannot take away."""
    block = mmap.mmap(-1, 64 * MIB)
    call("mlock", ctypes.byref(ctypes.c_char.from_buffer(block)), len(block))
    return "64 MiB"


@program("no control: it would load the machine", alone=True, by_uid=True)
def forks_without_end(facts: Facts) -> str | None:
    """Fork until it may not (a fork bomb)."""
    bound = facts["max_processes"]
    for made in range(4 * bound):
        try:
            child = os.fork()
        except OSError as error:
            raise Held(f"{made} processes") from error
        if child == 0:
            time.sleep(300)
    return f"more than {4 * bound} processes"


@program(
    "user",
    reaches="processes up to `SANDBOX_MAX_PROCESSES`, where there is no budget of pids",
    bound="pids",
    alone=True,
)
def makes_many_processes(facts: Facts) -> str | None:
    """Keep sixty processes."""
    children: list[int] = []
    try:
        while len(children) < 60:
            child = os.fork()
            if child == 0:
                time.sleep(300)
            children.append(child)
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
    return "60 processes"


@program("no control: it would load the machine", alone=True, by_uid=True)
def starts_threads_without_end(facts: Facts) -> str | None:
    """Start threads until it may not."""
    bound = facts["max_processes"]
    threading.stack_size(64 << 10)
    for made in range(4 * bound):
        try:
            threading.Thread(target=time.sleep, args=(300,), daemon=True).start()
        except RuntimeError as error:
            raise Held(f"{made} threads") from error
    return f"more than {4 * bound} threads"


@program("no control: only its own table is filled")
def opens_files_without_end(facts: Facts) -> str | None:
    """Open files until it may not."""
    bound = facts["max_open_files"]
    for _ in range(bound + 1):
        os.dup(0)
    return f"more than {bound} files"


@program("no control: a test of limits runs it to its end", alone=True)
def prints_without_end(facts: Facts) -> str | None:
    """Print more than is kept."""
    chunk = b"x" * 65536
    written = 0
    while written < facts["max_output_bytes"] * 3:
        written += os.write(2, chunk)
    raise Held("to be seen by the test")


@program("user", reaches="inodes of /tmp: its size bounds bytes only")
def fills_tmp_with_names(facts: Facts) -> str | None:
    """Make 5,000 empty files in /tmp, which cost memory of the kernel."""
    os.mkdir("/tmp/hostile-names")
    for number in range(5000):
        os.close(os.open(f"/tmp/hostile-names/{number}", os.O_CREAT | os.O_WRONLY))
    for number in range(5000):
        os.unlink(f"/tmp/hostile-names/{number}")
    os.rmdir("/tmp/hostile-names")
    return "5000 files"
