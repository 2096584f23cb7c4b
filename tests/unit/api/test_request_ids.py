"""Every request is logged once, and no client waits for that."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from structlog.testing import capture_logs

from api.request_ids import ENVIRON_KEY, RequestIds
from sandloom.telemetry import is_request_id


def application(*pieces: bytes) -> RequestIds:
    def answer(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        assert is_request_id(environ[ENVIRON_KEY])
        start_response("202 ACCEPTED", [])
        return iter(pieces)

    return RequestIds(answer)


def begin(app: RequestIds) -> Any:
    return app({"REQUEST_METHOD": "POST", "PATH_INFO": "/x"}, lambda *_: None)


def test_a_request_is_logged_once_its_first_piece_was_taken() -> None:
    with capture_logs() as logs:
        answer = begin(application(b"one", b"two", b"three"))
        pieces = iter(answer)
        assert next(pieces) == b"one"
        assert logs == []
        assert next(pieces) == b"two"
        assert [(line["event"], line["status"], line["path"]) for line in logs] == [("request", 202, "/x")]
        assert list(pieces) == [b"three"]
        answer.close()
    assert len(logs) == 1


@pytest.mark.parametrize("taken", [0, 1])
def test_an_answer_that_is_not_taken_whole_is_logged_too(taken: int) -> None:
    with capture_logs() as logs:
        answer = begin(application(*[b"piece"] * taken))
        for _ in zip(range(taken), answer, strict=False):
            pass
        answer.close()
    assert [line["status"] for line in logs] == [202]
