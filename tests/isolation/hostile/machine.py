"""What a command learns of the machine, and of others by what they share: documented, not contained."""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import struct
import sys
from typing import Any

from .linux import call
from .program import Facts, program


@program("user", reaches="the release of the host's kernel")
def reads_the_kernels_release(facts: Facts) -> str | None:
    """Ask which kernel this is, to choose an exploit."""
    return os.uname().release


@program("user", reaches="uptime, load and memory of the whole machine")
def reads_the_machines_load(facts: Facts) -> str | None:
    """Ask for load, memory and number of processes by sysinfo, which no namespace changes."""
    info = ctypes.create_string_buffer(256)
    call("sysinfo", info)
    uptime, load = struct.unpack_from("lL", info.raw)
    return f"up {uptime} s, load {load / 65536:.1f}"


@program("user", reaches="what others run and read: the page cache is shared")
def sees_the_page_cache(facts: Facts) -> str | None:
    """Find out which parts of a system file are in the cache, as they are after somebody used them."""
    cached = 0
    with open(sys.executable, "rb") as stream:
        for offset in range(0, os.fstat(stream.fileno()).st_size, 64 << 10):
            with contextlib.suppress(BlockingIOError):
                cached += os.preadv(stream.fileno(), [bytearray(64)], offset, os.RWF_NOWAIT) > 0
    return f"{cached} parts of it" if cached else None


@program("user", reaches="when others open a system file: watches work across sandboxes")
def watches_files_of_others(facts: Facts) -> str | None:
    """Watch a system file by inotify while another sandbox opens it."""
    opened = 0x20
    watch = call("inotify_init1", os.O_NONBLOCK)
    call("inotify_add_watch", watch, facts["watched_file"].encode(), opened)
    ready: list[Any] = select.select([watch], [], [], 10)[0]
    return "another one opened it" if ready else None


@program("user", reaches="locks of other sandboxes on system files, a channel between them")
def feels_locks_of_others(facts: Facts) -> str | None:
    """Take a lock on a system file that another sandbox holds one on."""
    import fcntl

    with open(facts["locked_file"]) as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return "the other sandbox's lock is felt"
    return None
