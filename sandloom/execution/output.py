"""A command's output on its way to the caller: capped, and without bwrap's own words."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

Sink = Callable[[str, bytes], None]

READ_BYTES = 64 * 1024
_HEAD_BYTES = 16 * 1024
_HOLD_SECONDS = 0.05
_LAUNCHER_PREFIX = b"bwrap: "
# A pipe holds at most this much for a process without privileges; after the end there is no more to come.
_DRAIN_BYTES = 2 << 20


class Stream:
    """One of stdout and stderr: reads its pipe, passes on at most ``max_bytes``, then discards and says so.

    ``head`` keeps the first bytes of stderr for ``failure.py``. What starts like a message of bwrap is held back for a
    moment: if the program turns out never to have run, the message is not the command's output.
    """

    def __init__(self, name: str, fd: int, max_bytes: int, sink: Sink) -> None:
        self.name = name
        self.fd = fd
        self.truncated = False
        self.head = b""
        self._left_bytes = max_bytes
        self._sink = sink
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._hold_until: float | None = None
        self._may_hold = name == "stderr"
        os.set_blocking(fd, False)

    def read(self) -> bool:
        """Read once; ``False`` at the end of the pipe."""
        try:
            chunk = os.read(self.fd, READ_BYTES)
        except BlockingIOError:
            return True
        if not chunk:
            return False
        self._take(chunk)
        return True

    def drain(self) -> None:
        """Read what is in the pipe now, without waiting for whoever else may hold it open."""
        read_bytes = 0
        while self.fd >= 0 and read_bytes < _DRAIN_BYTES:
            try:
                chunk = os.read(self.fd, READ_BYTES)
            except BlockingIOError:
                return
            if not chunk:
                return
            read_bytes += len(chunk)
            self._take(chunk)

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    @property
    def release_in_seconds(self) -> float | None:
        """When held bytes must go on at the latest; ``None`` when nothing is held."""
        return None if self._hold_until is None else max(0.0, self._hold_until - time.monotonic())

    def release(self, *, drop: bool = False) -> None:
        """Pass on, or drop, what is held back; nothing is held afterwards."""
        held, self._held = self._held, []
        self._hold_until = None
        self._may_hold = False
        if not drop:
            for chunk in held:
                self._pass(chunk)

    def say(self, text: str) -> None:
        """Add a message of the engine itself."""
        self._pass(text.encode("utf-8", "replace"))

    def _take(self, chunk: bytes) -> None:
        if len(self.head) < _HEAD_BYTES:
            self.head += chunk[: _HEAD_BYTES - len(self.head)]
        if self._may_hold and _maybe_launcher(self.head):
            self._held.append(chunk)
            self._held_bytes += len(chunk)
            if self._hold_until is None:
                self._hold_until = time.monotonic() + _HOLD_SECONDS
            if self._held_bytes <= READ_BYTES:
                return
        else:
            self._held.append(chunk)
        self.release()

    def _pass(self, chunk: bytes) -> None:
        if len(chunk) > self._left_bytes:
            self.truncated = True
            chunk = chunk[: self._left_bytes]
        if chunk:
            self._left_bytes -= len(chunk)
            self._sink(self.name, chunk)


def _maybe_launcher(head: bytes) -> bool:
    return head.startswith(_LAUNCHER_PREFIX) or _LAUNCHER_PREFIX.startswith(head)
