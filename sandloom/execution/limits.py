"""``Limits`` as rlimits: triples of resource number, soft and hard value."""

from __future__ import annotations

import resource

from sandloom.execution.spec import Limits

Triple = tuple[int, int, int]


def rlimits(limits: Limits, *, uid_separation: bool) -> list[Triple]:
    """The rlimits a command starts with.

    ``RLIMIT_NPROC`` counts all processes of a real uid, so it is set only for a uid of the sandbox's own.
    ``RLIMIT_CORE`` of exactly 1 is the one value that also keeps the kernel from starting a piped core handler.
    ``RLIMIT_CPU`` leaves a second between SIGXCPU and SIGKILL.
    """
    wanted = [
        (resource.RLIMIT_CPU, limits.cpu_seconds, limits.cpu_seconds + 1),
        (resource.RLIMIT_NOFILE, limits.max_open_files, limits.max_open_files),
        (resource.RLIMIT_FSIZE, limits.max_file_size_bytes, limits.max_file_size_bytes),
        (resource.RLIMIT_CORE, 1, 1),
    ]
    if uid_separation:
        wanted.append((resource.RLIMIT_NPROC, limits.max_processes, limits.max_processes))
        return wanted
    return [clamp(triple, resource.getrlimit(triple[0])[1]) for triple in wanted]


def clamp(triple: Triple, hard_bound: int) -> Triple:
    """``triple`` within a hard limit that an ordinary user cannot raise."""
    number, soft, hard = triple
    if hard_bound == resource.RLIM_INFINITY:
        return triple
    return number, min(soft, hard_bound), min(hard, hard_bound)
