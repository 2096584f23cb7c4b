"""What a command says of itself: JSON lines that it writes into a FIFO of its own, at ``TARGET``.

The FIFO is bound into the mount namespace of that one command and lies nowhere in the sandbox's own directories, and
only the sandbox's group may open it for writing: so a line in it is that command's. It can neither be read nor removed
inside. A writer that is faster than ``READ_BYTES`` each ``PAUSE_SECONDS`` waits; what goes beyond the bounds is dropped
and counted.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import time
from typing import Any, NoReturn

from sandloom.execution.output import Sink

#: The kind of the events, and where commands find the FIFO.
KIND = "note"
TARGET = "/run/trace"
VARIABLE = "SANDLOOM_TRACE"

#: Of a line with its end: what a pipe takes in one piece, whoever else writes.
MAX_LINE_BYTES = 4096
#: Of one command; empty ones are counted, too.
MAX_LINES = 1000
MAX_TOTAL_BYTES = 1 << 20
#: Whoever follows the command must be able to parse it too.
MAX_DEPTH = 32
READ_BYTES = 16 * 1024
PAUSE_SECONDS = 0.02
# What a process without privileges can make of a pipe; after the end there is no more to come.
_DRAIN_BYTES = 1 << 20


def parse(line: bytes) -> bytes | None:
    """The data of the event that ``line`` is; None for what is not JSON of reasonable depth."""
    try:
        value = json.loads(line.decode("utf-8"), parse_constant=_refuse)
        if not _is_shallow(value, MAX_DEPTH):
            return None
        return json.dumps({"note": value}, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode("utf-8")
    except (ValueError, RecursionError):
        return None


class Notes:
    """The FIFO of one command, from before its start until ``close``. Used by the thread that pumps its output.

    Raises ``OSError`` where it cannot be made.
    """

    def __init__(self, directory: str, gid: int | None, sink: Sink) -> None:
        """``gid``: the sandbox's group; None where commands have the worker's own uid."""
        self.path = os.path.join(directory, secrets.token_hex(16))
        self.fd = -1
        self.dropped = 0
        self._sink = sink
        self._rest = b""
        self._skipping = False
        self._lines = 0
        self._total_bytes = 0
        self._next_seconds = 0.0
        os.mkfifo(self.path, 0o600)
        try:
            if gid is not None:
                os.chown(self.path, -1, gid)
                os.chmod(self.path, 0o620)
            # For both, so that a writer never finds nobody there and the end of one is not the end of all.
            self.fd = os.open(self.path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            self.close()
            raise

    @property
    def pause_seconds(self) -> float:
        """How long not to read yet."""
        return max(0.0, self._next_seconds - time.monotonic())

    def read(self) -> int:
        """Read once; how many bytes there were."""
        try:
            chunk = os.read(self.fd, READ_BYTES)
        except BlockingIOError:
            return 0
        self._next_seconds = time.monotonic() + PAUSE_SECONDS
        if self._lines >= MAX_LINES:
            # Nothing more is taken, and a look at each line of a flood would cost the worker more than its writer.
            self.dropped += chunk.count(b"\n")
            self._rest, self._skipping = chunk.rpartition(b"\n")[2][:1], False
            return len(chunk)
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            self._take(line)
        if len(self._rest) >= MAX_LINE_BYTES:
            self._rest, self._skipping = b"", True
        return len(chunk)

    def drain(self) -> None:
        """Everything has ended: take what is there, and say what was dropped."""
        left_bytes = _DRAIN_BYTES
        while self.fd >= 0 and left_bytes > 0 and (read := self.read()):
            left_bytes -= read
        if self._rest or self._skipping:
            self._take(self._rest)
            self._rest = b""
        if self.dropped:
            self._sink(KIND, b'{"dropped":%d}' % self.dropped)

    def close(self) -> None:
        """Idempotent."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)

    def _take(self, line: bytes) -> None:
        skipped, self._skipping = self._skipping, False
        self._lines += 1
        if not line.strip() and not skipped:
            return
        whole = not skipped and len(line) < MAX_LINE_BYTES and self._lines <= MAX_LINES
        data = parse(line) if whole else None
        if data is None or self._total_bytes + len(data) > MAX_TOTAL_BYTES:
            self.dropped += 1
            return
        self._total_bytes += len(data)
        self._sink(KIND, data)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _is_shallow(value: Any, left: int) -> bool:
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return left > 0 and all(_is_shallow(child, left - 1) for child in children)
