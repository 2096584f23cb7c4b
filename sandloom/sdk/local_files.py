"""Files of this machine, piece by piece."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

_PIECE_BYTES = 256 * 1024


def read_pieces(file: BinaryIO) -> Iterator[bytes]:
    while piece := file.read(_PIECE_BYTES):
        yield piece


def draft_of(target: Path) -> Path:
    """Where what becomes ``target`` waits until it is whole. Raises FileNotFoundError, NotADirectoryError."""
    directory = target.parent
    if not directory.is_dir():
        number = errno.ENOTDIR if os.path.lexists(directory) else errno.ENOENT
        raise OSError(number, f"no local directory for {target.name}; make it first", str(directory))
    return target.with_name(f".{target.name}.{secrets.token_hex(4)}")


def save(pieces: Iterator[bytes], target: Path) -> int:
    """Make or replace the file, which appears when all has arrived; returns its size in bytes."""
    draft = draft_of(target)
    size_bytes = 0
    try:
        with draft.open("xb") as file:
            for piece in pieces:
                size_bytes += file.write(piece)
        os.replace(draft, target)
    finally:
        draft.unlink(missing_ok=True)
    return size_bytes
