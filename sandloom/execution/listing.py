"""Pages of a directory of any size, in bounded memory.

Up to 10,000 entries come sorted by name. Larger directories come in the file system's own order, since sorting each
page would read them whole each time; the cursor then is the kernel's position, from which the next page starts at once.
"""

from __future__ import annotations

import base64
import binascii
import heapq
import os
from bisect import bisect_right
from dataclasses import dataclass
from itertools import islice

from sandloom.execution.directory_entries import entries_of
from sandloom.execution.file_entries import Entry, entries_in
from sandloom.execution.file_faults import FaultKind, FileFault
from sandloom.execution.paths import SandboxPath

SORTED_ENTRIES = 10_000
#: About how large a page may become, as it travels in one message.
PAGE_BYTES = 512 << 10
_ENTRY_BYTES = 160  # what an entry says beside its names


@dataclass(frozen=True, slots=True)
class Page:
    """``total`` is None above 10,000 entries; ``cursor`` is None on the last page.

    A page can be shorter than asked although more follow: entries that vanish while it is made are left out, and there
    is a bound on its bytes.
    """

    entries: list[Entry]
    total: int | None
    has_more: bool
    cursor: str | None


def list_page(fd: int, directory: SandboxPath, limit: int, offset: int, cursor: str | None) -> Page:
    """The page after ``cursor``, or from ``offset`` on. Raises FileFault(CURSOR_INVALID) and OSError.

    Following cursors shows each entry that stays in place exactly once; with offsets that holds while nothing changes.
    """
    kind, value = _decode(cursor) if cursor is not None else ("", b"")
    if kind == "p":
        return _by_position(fd, directory, limit, 0, _position(value))
    names = _first_names(fd, SORTED_ENTRIES + 1)
    total = len(names) if len(names) <= SORTED_ENTRIES else None
    if kind == "n" or total is not None:
        return _by_name(fd, directory, limit, offset, value if kind else None, names, total)
    return _by_position(fd, directory, limit, offset, 0)


def _first_names(fd: int, count: int) -> list[bytes]:
    """Faster than ``entries_of``, which knows positions, too: every page of a small directory reads it whole."""
    os.lseek(fd, 0, os.SEEK_SET)
    with os.scandir(fd) as entries:
        return [os.fsencode(entry.name) for entry in islice(entries, count)]


def _by_name(
    fd: int, directory: SandboxPath, limit: int, offset: int, after: bytes | None, names: list[bytes], total: int | None
) -> Page:
    if total is None:
        # Grew past the bound between two pages: what was begun in this order goes on in it.
        every = (entry.name for entry in entries_of(fd))
        found = heapq.nsmallest(limit + 1, (name for name in every if after is None or name > after))
    else:
        found = sorted(names)
        found = found[offset if after is None else bisect_right(found, after) :]
    shown = found[: _fitting(directory, found, limit)]
    has_more = len(found) > len(shown)
    following = _encode("n", shown[-1]) if has_more else None
    return Page(_look_up(fd, directory, shown), total, has_more, following)


def _by_position(fd: int, directory: SandboxPath, limit: int, offset: int, start: int) -> Page:
    found = list(islice(entries_of(fd, start), offset, offset + limit + 1))
    shown = found[: _fitting(directory, [entry.name for entry in found], limit)]
    has_more = len(found) > len(shown)
    following = _encode("p", str(shown[-1].position).encode()) if has_more else None
    return Page(_look_up(fd, directory, [entry.name for entry in shown]), None, has_more, following)


def _fitting(directory: SandboxPath, names: list[bytes], limit: int) -> int:
    """How many of the names fit a page: long names in deep directories make it shorter, never empty."""
    fixed = len(directory.raw) + _ENTRY_BYTES
    left = PAGE_BYTES
    for number, name in enumerate(names[:limit]):
        left -= fixed + 2 * len(name)
        if left < 0:
            return max(1, number)
    return min(limit, len(names))


def _look_up(fd: int, directory: SandboxPath, names: list[bytes]) -> list[Entry]:
    entries = []
    entry = entries_in(directory)
    for name in names:
        try:
            found = os.stat(name, dir_fd=fd, follow_symlinks=False)
        except FileNotFoundError:
            continue
        entries.append(entry(name, found))
    return entries


def _encode(kind: str, value: bytes) -> str:
    return base64.urlsafe_b64encode(kind.encode() + value).decode().rstrip("=")


def _decode(cursor: str) -> tuple[str, bytes]:
    try:
        raw = base64.b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4), b"-_", validate=True)
    except (UnicodeEncodeError, binascii.Error):
        raise _cursor_invalid() from None
    if raw[:1] not in (b"n", b"p"):
        raise _cursor_invalid()
    return raw[:1].decode(), raw[1:]


def _position(value: bytes) -> int:
    if not value.isdigit() or int(value[:20]) >= 1 << 63 or len(value) > 19:
        raise _cursor_invalid()
    return int(value)


def _cursor_invalid() -> FileFault:
    return FileFault(FaultKind.CURSOR_INVALID, "the cursor is not one that a listing gave")
