# Made from sandloom/sdk/aio/follow.py by scripts/sync_sdk.py: change that one.
"""The event stream of a command, followed across lost connections."""

from __future__ import annotations

from collections.abc import Iterator

import httpx

from sandloom.errors import StreamLimit, Unavailable
from sandloom.sdk.events import Event, FrameReader, event_of
from sandloom.sdk.http import pause_seconds, unreachable
from sandloom.sdk.transport import Transport
from sandloom.sdk.waiting import sleep

#: The service sends a comment every 15 s, so a longer silence means a dead connection.
_SILENCE_SECONDS = 45.0
#: With their pauses some two minutes, in which an API process is replaced.
_MAX_FAILURES = 30


def follow(transport: Transport, path: str, *, after: int = 0) -> Iterator[Event]:
    """Every event with seq > ``after``, exactly once and in order, until the command has ended.

    A lost connection is taken up again after the last event seen. Raises Unavailable when the service stays away.
    """
    cursor, failures = after, 0
    while True:
        try:
            with transport.stream(
                path,
                headers={"Accept": "text/event-stream", "Last-Event-ID": str(cursor)},
                read_timeout_seconds=_SILENCE_SECONDS,
            ) as response:
                if response.status_code == 204:
                    return
                reader = FrameReader()
                for chunk in response.iter_bytes():
                    for frame in reader.feed(chunk):
                        if frame.event == "end":
                            return
                        event = event_of(frame)
                        if event is None or event.seq <= cursor:
                            continue
                        cursor, failures = event.seq, 0
                        yield event
            failure: Exception = Unavailable("the event stream ended before the command did")
        except httpx.TransportError as error:
            failure = unreachable(error)
        except (Unavailable, StreamLimit) as error:
            failure = error
        failures += 1
        if failures > _MAX_FAILURES:
            raise failure
        sleep(pause_seconds(failures))
