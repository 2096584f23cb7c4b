"""The bus of the embedded mode: one process, no server."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from sandloom.contracts.ports import Head
from sandloom.ids import ExecKey
from sandloom.streams.codec import BusMessageInvalid, decode_reply, encode_reply
from sandloom.streams.watchers import Counts, ExecWatch, Watchers

log = logging.getLogger(__name__)


class MemoryBus:
    """Delivers on the publisher's thread. ``counts`` has ``dropped`` (nobody can use it)."""

    def __init__(self) -> None:
        self.counts = Counts()
        self._watchers = Watchers()
        self._channel = f"reply:{uuid.uuid4().hex}"
        self._handler: Callable[[dict[str, Any]], None] | None = None
        self._closed = False

    def publish_head(self, key: ExecKey, seq: int, terminal: bool) -> None:
        if not self._closed:
            self._watchers.deliver(key, Head(seq, terminal))

    def watch(self, key: ExecKey) -> ExecWatch:
        return self._watchers.watch(key)

    def refresh(self, read: Callable[[Sequence[ExecKey]], Iterable[tuple[ExecKey, Head]]]) -> None:
        self._watchers.refresh(read)

    def publish_reply(self, channel: str, body: Mapping[str, Any]) -> None:
        handler = self._handler
        if self._closed or handler is None or channel != self._channel:
            self.counts.add("dropped")
            return
        try:
            # The same round trip as over Redis, so that nothing passes here that would not pass there.
            handler(decode_reply(encode_reply(body)))
        except BusMessageInvalid:
            self.counts.add("dropped")
        except Exception:
            self.counts.add("dropped")
            log.exception("a reply could not be handled")

    def on_reply(self, handler: Callable[[dict[str, Any]], None]) -> str:
        if self._handler is not None:
            raise RuntimeError("this bus hands its replies to another handler already")
        self._handler = handler
        return self._channel

    @property
    def connected(self) -> bool:
        return not self._closed

    def close(self) -> None:
        """Nothing is delivered any more; every wait ends once."""
        self._closed = True
        self._watchers.wake_all()
