# Made from sandloom/sdk/aio/process.py by scripts/sync_sdk.py: change that one.
"""A command that was started and not waited for."""

from __future__ import annotations

from collections.abc import Iterator

from sandloom.sdk.events import Event
from sandloom.sdk.follow import follow
from sandloom.sdk.http import name_in_address
from sandloom.sdk.results import Result
from sandloom.sdk.transport import Transport

_LONG_POLL_SECONDS = 25


class Process:
    """``box.start(…)``. It runs on when this object, or the client, is gone."""

    def __init__(self, transport: Transport, sandbox_path: str, exec_id: str) -> None:
        self._transport = transport
        self.exec_id = exec_id
        self._path = f"{sandbox_path}/exec/{name_in_address('exec_id', exec_id)}"

    def poll(self, *, wait_seconds: int = 0, encoding: str | None = None) -> Result:
        """The record as it is now, or as it is when the command ends within ``wait_seconds``.

        ``encoding="base64"`` keeps output exact that is not UTF-8.
        """
        params = {"wait": wait_seconds or None, "encoding": encoding}
        answer = self._transport.call("GET", self._path, params=params, wait_seconds=wait_seconds, safe=True)
        return Result.model_validate(answer.json())

    def wait(self, *, encoding: str | None = None) -> Result:
        """Wait until the command has ended. The command's own timeout bounds that."""
        while True:
            result = self.poll(wait_seconds=_LONG_POLL_SECONDS, encoding=encoding)
            if result.finished:
                return result

    def events(self, *, after: int = 0) -> Iterator[Event]:
        """Its events from the beginning, or those after a seq, until it has ended; reconnects by itself."""
        return follow(self._transport, f"{self._path}/events", after=after)

    def cancel(self) -> bool:
        """End the command and every process it started; False when it had ended already."""
        answer = self._transport.call("POST", f"{self._path}/cancel", json={}, safe=True)
        return bool(answer.json().get("cancelled"))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.exec_id!r})"
