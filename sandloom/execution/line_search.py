"""Searching files line by line in constant memory. The expressions themselves are the caller's."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from sandloom.execution.file_entries import exact
from sandloom.execution.paths import SandboxPath

#: The first match in the bytes at or behind a position: its start and end. ``^`` and ``$`` are those of lines, and no
#: match spans two. It must take time linear in the bytes.
Search = Callable[[bytes, int], tuple[int, int] | None]

_CHUNK_BYTES = 256 * 1024
_MAX_LINE_BYTES = 1 << 20  # a longer one is searched in parts
_BINARY_BYTES = 8192
_SHOWN_BYTES = 400
_BEFORE_BYTES = 120
#: Of all that is found, as it travels in one message.
_MAX_ANSWER_BYTES = 192 * 1024


@dataclass(frozen=True, slots=True)
class LineMatch:
    """``line`` and ``column`` count from 1, columns in bytes; ``text`` is the line or a part of it."""

    path: str
    line: int
    column: int
    text: str
    path_base64: str | None = None


@dataclass(slots=True)
class Matches:
    """What was found, up to a number of matches and of bytes; ``full`` when there may be more."""

    most: int
    found: list[LineMatch] = field(default_factory=list)
    full: bool = False
    _left_bytes: int = _MAX_ANSWER_BYTES

    def add(self, match: LineMatch) -> None:
        self._left_bytes -= len(json.dumps(match.text)) + len(json.dumps(match.path)) + 100
        if len(self.found) == self.most or self._left_bytes < 0:
            self.full = True
        else:
            self.found.append(match)


def search_file(fd: int, path: SandboxPath, search: Search, matches: Matches, late: Callable[[], bool]) -> bool:
    """Adds the file's matching lines to ``matches``, one match for a line; False for a binary file, which has a NUL in
    its beginning. Stops when ``matches`` is full or it is ``late``."""
    newlines = 0
    for number, block in enumerate(_blocks(fd)):
        if number == 0 and b"\0" in block[:_BINARY_BYTES]:
            return False
        newlines = _search_block(block, newlines, path, search, matches)
        if matches.full or late():
            break
    return True


def _blocks(fd: int) -> Iterator[bytes]:
    """The content in pieces that end with lines."""
    at, rest = 0, b""
    while chunk := os.pread(fd, _CHUNK_BYTES, at):
        at += len(chunk)
        block = rest + chunk
        end = block.rfind(b"\n") + 1
        if not end and len(block) < _MAX_LINE_BYTES:
            rest = block
            continue
        end = end or len(block)
        rest = block[end:]
        yield block[:end]
    if rest:
        yield rest


def _search_block(block: bytes, newlines: int, path: SandboxPath, search: Search, matches: Matches) -> int:
    """Returns the number of newlines up to the end of the block."""
    at = counted = 0
    while at < len(block) and not matches.full:
        span = search(block, at)
        if span is None or (span[0] == len(block) and block.endswith(b"\n")):
            break
        begin = block.rfind(b"\n", 0, span[0]) + 1
        end = block.find(b"\n", span[0])
        end = len(block) if end < 0 else end
        newlines += block.count(b"\n", counted, begin)
        counted = begin
        matches.add(_match(path, newlines + 1, block[begin:end], span[0] - begin))
        at = end + 1
    return newlines + block.count(b"\n", counted)


def _match(path: SandboxPath, line: int, text: bytes, column: int) -> LineMatch:
    begin = max(0, column - _BEFORE_BYTES) if len(text) > _SHOWN_BYTES else 0
    shown = text[begin : begin + _SHOWN_BYTES].removesuffix(b"\r").decode("utf-8", "replace")
    return LineMatch(path.text, line, column + 1, shown, exact(path.raw))
