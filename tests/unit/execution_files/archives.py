"""Tar archives, made by the standard library, as callers would send them."""

from __future__ import annotations

import io
import os
import re
import tarfile
from collections.abc import Iterable, Iterator

Entry = tuple[str | tarfile.TarInfo, bytes]


def info(name: str, kind: bytes = tarfile.REGTYPE, target: str = "", **more: object) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname = kind, target
    for field, value in more.items():
        setattr(made, field, value)
    return made


def archive(entries: Iterable[Entry], form: int = tarfile.PAX_FORMAT) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form, encoding="utf-8", errors="surrogateescape") as tar:
        for entry, data in entries:
            member = entry if isinstance(entry, tarfile.TarInfo) else info(entry)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


def unpacked(data: bytes) -> dict[str, tuple[bytes, bytes, int]]:
    """Name → type, content or link target, mode."""
    with tarfile.open(fileobj=io.BytesIO(data), encoding="utf-8", errors="surrogateescape") as tar:
        found = {}
        for member in tar:
            file = tar.extractfile(member) if member.isreg() else None
            content = file.read() if file is not None else os.fsencode(member.linkname)
            found[member.name] = (member.type, content, member.mode)
        return found


def left_out(data: bytes) -> int:
    found = re.match(rb"sandloom: skipped=(\d+)\n\0+\Z", data[-512:])
    return int(found[1]) if found else 0


def pieces(data: bytes, size: int) -> Iterator[bytes]:
    return (data[at : at + size] for at in range(0, len(data), size))
