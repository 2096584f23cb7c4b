"""What can go wrong with a sandbox's files, as one exception with a kind."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum

from sandloom.execution.spec import ExecutionError


class FaultKind(StrEnum):
    """One kind for each answer that a caller can act on."""

    PATH_INVALID = "path_invalid"
    CURSOR_INVALID = "cursor_invalid"
    ARCHIVE_INVALID = "archive_invalid"
    PATTERN_INVALID = "pattern_invalid"
    NOT_FOUND = "not_found"
    EXISTS = "exists"
    WRONG_KIND = "wrong_kind"
    TOO_LARGE = "too_large"
    NOT_EMPTY = "not_empty"
    LOCKED = "locked"
    ACCESS = "access"
    DISK_FULL = "disk_full"
    FAILED = "failed"


class FileFault(ExecutionError):
    """A file call that cannot be done. ``detail`` names sandbox paths only, ``extra`` holds e.g. ``size_bytes``."""

    def __init__(self, kind: FaultKind, detail: str, **extra: int | str) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail
        self.extra = extra


_TEXTS: dict[FaultKind, str] = {
    FaultKind.PATH_INVALID: "is not a usable path",
    FaultKind.NOT_FOUND: "does not exist",
    FaultKind.EXISTS: "exists already",
    FaultKind.WRONG_KIND: "is, or passes through, something of the wrong kind; links are never followed",
    FaultKind.TOO_LARGE: "would be larger than a file may be",
    FaultKind.NOT_EMPTY: "is a directory with entries",
    FaultKind.LOCKED: "is in use",
    FaultKind.ACCESS: "is closed to the sandbox's own user",
    FaultKind.DISK_FULL: "cannot be stored: the disk or the disk budget is full",
}

_KINDS: dict[int, FaultKind] = {
    errno.ENAMETOOLONG: FaultKind.PATH_INVALID,
    errno.ENOENT: FaultKind.NOT_FOUND,
    errno.ESTALE: FaultKind.NOT_FOUND,
    errno.EEXIST: FaultKind.EXISTS,
    errno.ELOOP: FaultKind.WRONG_KIND,
    errno.ENOTDIR: FaultKind.WRONG_KIND,
    errno.EISDIR: FaultKind.WRONG_KIND,
    errno.ENXIO: FaultKind.WRONG_KIND,
    errno.ENODEV: FaultKind.WRONG_KIND,
    errno.EFBIG: FaultKind.TOO_LARGE,
    errno.ENOTEMPTY: FaultKind.NOT_EMPTY,
    # A file lease answers EAGAIN to a non-blocking open.
    errno.EAGAIN: FaultKind.LOCKED,
    errno.EBUSY: FaultKind.LOCKED,
    errno.ETXTBSY: FaultKind.LOCKED,
    errno.EACCES: FaultKind.ACCESS,
    errno.EPERM: FaultKind.ACCESS,
    errno.EROFS: FaultKind.ACCESS,
    errno.EXDEV: FaultKind.ACCESS,
    errno.ENOSPC: FaultKind.DISK_FULL,
    errno.EDQUOT: FaultKind.DISK_FULL,
    errno.EMLINK: FaultKind.DISK_FULL,
}


def fault_of(error: OSError, path: str) -> FileFault:
    """The fault for a failed system call on the sandbox path ``path``."""
    kind = _KINDS.get(error.errno or 0, FaultKind.FAILED)
    text = _TEXTS.get(kind) or f"failed with {errno.errorcode.get(error.errno or 0, 'an unknown error')}"
    return FileFault(kind, f"{path} {text}")


@contextmanager
def translated(path: str) -> Iterator[None]:
    """Turns every OSError inside into a FileFault that names ``path``."""
    try:
        yield
    except OSError as error:
        raise fault_of(error, path) from error
