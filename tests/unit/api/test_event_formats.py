"""One event is one frame, whatever its bytes."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from api.event_formats import ndjson, sse
from sandloom.execs.records import Event
from sandloom.sdk.events import frames


class Replay:
    """A reader of what is there already."""

    def __init__(self, batches: list[list[Event]], finished: bool) -> None:
        self._batches = batches
        self.finished = finished

    def __iter__(self) -> Iterator[list[Event]]:
        return iter(self._batches)


def bytes_of(data: dict[str, str]) -> bytes:
    return base64.b64decode(data["base64"]) if "base64" in data else data["text"].encode()


@given(st.lists(st.tuples(st.sampled_from(["stdout", "stderr"]), st.binary(max_size=40) | st.text().map(str.encode))))
def test_any_output_comes_back_as_it_was(output: list[tuple[str, bytes]]) -> None:
    events = [Event(seq, kind, data, 0) for seq, (kind, data) in enumerate(output, 1)]
    found = list(frames(sse(Replay([events, []], True))))
    assert [(frame.id, frame.event) for frame in found[:-1]] == [(str(e.seq), e.kind) for e in events]
    assert [bytes_of(json.loads(frame.data)) for frame in found[:-1]] == [data for _, data in output]
    assert (found[-1].id, found[-1].event) == (None, "end")
    lines = [line for line in b"".join(ndjson(Replay([events], True))).decode().splitlines() if line]
    assert [bytes_of(json.loads(line)["data"]) for line in lines[:-1]] == [data for _, data in output]


def test_silence_is_a_comment_without_an_id_and_a_cut_stream_has_no_end() -> None:
    sent = b"".join(sse(Replay([[]], False)))
    assert b"\n: still here\n" in sent
    assert b"id:" not in sent
    assert b"event: end" not in sent
    assert b"".join(ndjson(Replay([[]], False))) == b"\n"
