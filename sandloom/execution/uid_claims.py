"""Blocks of uids whose sandboxes lie on a disk of this host, also while their worker does not run.

A worker that starts notes its block beside the host's locks. The note counts as long as the worker's own files name the
same block and its root holds a sandbox; then nobody else may have these uids.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sandloom.execution.durable import read_small, write_small
from sandloom.execution.root_directory import make_own

_DIRECTORY = "blocks"


@dataclass(frozen=True, slots=True)
class Claim:
    """``state``: the worker's own directory, with its ``uid_block``. ``sandboxes``: where its root has them."""

    start: int
    end: int
    state: str
    sandboxes: str

    def overlaps(self, start: int, end: int) -> bool:
        return self.start <= end and start <= self.end

    @property
    def is_current(self) -> bool:
        """Whether the worker's own files name this block."""
        try:
            return read_small(Path(self.state, "uid_block")) == str(self.start)
        except OSError:
            return False

    @property
    def holds(self) -> bool:
        """Whether sandboxes on the disk have uids of the block."""
        try:
            return next(_entries(self.sandboxes), None) is not None
        except OSError:
            return False


def note(lock_dir: Path, claim: Claim) -> None:
    """Keep the block for the worker's root. The caller holds the block's lock."""
    directory = lock_dir / _DIRECTORY
    make_own(directory, 0o700)
    values = {"start": claim.start, "end": claim.end, "state": claim.state, "sandboxes": claim.sandboxes}
    write_small(directory / _name(claim.state), json.dumps(values))


def others(lock_dir: Path, state: Path) -> list[Claim]:
    """What holds for other workers than the one whose own directory is ``state``; notes that are over are removed."""
    directory = lock_dir / _DIRECTORY
    if not directory.is_dir():
        return []
    found = []
    for path in sorted(directory.iterdir()):
        if path.name == _name(str(state)) or path.name.startswith("."):
            continue
        claim = _read(path)
        if claim is None or not claim.is_current:
            path.unlink(missing_ok=True)
        elif claim.holds:
            found.append(claim)
    return found


def _name(state: str) -> str:
    return hashlib.sha256(state.encode()).hexdigest()[:32]


def _read(path: Path) -> Claim | None:
    try:
        values = json.loads(read_small(path) or "")
        return Claim(int(values["start"]), int(values["end"]), str(values["state"]), str(values["sandboxes"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _entries(sandboxes: str) -> Iterator[str]:
    for tenant in os.listdir(sandboxes):
        with contextlib.suppress(NotADirectoryError, FileNotFoundError):
            yield from os.listdir(os.path.join(sandboxes, tenant))
