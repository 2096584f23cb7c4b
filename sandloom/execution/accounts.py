"""Which uids belong to someone on this host."""

from __future__ import annotations

import grp
import pwd
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_SUBORDINATE_FILES = (Path("/etc/subuid"), Path("/etc/subgid"))
_KERNEL_IDS = (65534, 65535)  # the overflow id, and the 16-bit "no id"


@dataclass(frozen=True, slots=True)
class Accounts:
    """``ids``: uids and gids with an entry that the system lists; ``ranges``: first and last subordinate ids."""

    ids: frozenset[int]
    ranges: tuple[tuple[int, int], ...]
    ask_system: bool = True

    @classmethod
    def read(cls) -> Accounts:
        ids = {entry.pw_uid for entry in pwd.getpwall()} | {entry.pw_gid for entry in pwd.getpwall()}
        ids |= {entry.gr_gid for entry in grp.getgrall()}
        ranges = [found for path in _SUBORDINATE_FILES for found in _subordinate(path)]
        return cls(frozenset(ids) | set(_KERNEL_IDS), tuple(ranges))

    def conflict(self, start: int, end: int) -> str | None:
        """Why ``start..end`` (inclusive) must not be used for sandboxes, None when nobody has a claim to it."""
        for first, last in self.ranges:
            if first <= end and start <= last:
                return f"{first}..{last} are subordinate ids of an account"
        for number in range(start, end + 1):
            if number in self.ids or (self.ask_system and _has_entry(number)):
                return f"{number} is the id of an account or group"
        return None


def _has_entry(number: int) -> bool:
    # Directory services often answer for single ids without listing them all.
    for lookup in (pwd.getpwuid, grp.getgrgid):
        try:
            lookup(number)
        except KeyError:
            continue
        return True
    return False


def _subordinate(path: Path) -> Iterator[tuple[int, int]]:
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        _, _, rest = line.partition(":")
        first, _, count = rest.partition(":")
        if first.strip().isdigit() and count.strip().isdigit() and int(count) > 0:
            yield int(first), int(first) + int(count) - 1
