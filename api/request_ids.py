"""One id per request: in the answer, in ``environ`` and in every log line."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

from sandloom.telemetry import get_logger, request_id

ENVIRON_KEY = "sandloom.request_id"
_log = get_logger("api.access")


class Application(Protocol):
    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any], /) -> Iterable[bytes]: ...


class RequestIds:
    """WSGI middleware; outermost, so that no answer of the application is without an id."""

    def __init__(self, application: Application) -> None:
        self._application = application

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        began = time.monotonic()
        answered: dict[str, Any] = {}
        with request_id(environ.get("HTTP_X_REQUEST_ID")) as chosen:
            environ[ENVIRON_KEY] = chosen

            def start(status: str, headers: list[tuple[str, str]], *rest: Any) -> Any:
                answered.update(
                    method=environ.get("REQUEST_METHOD"),
                    path=environ.get("PATH_INFO", "")[:512],
                    status=int(status[:3]),
                    answered_ms=round((time.monotonic() - began) * 1000, 1),
                )
                return start_response(status, [*headers, ("X-Request-ID", chosen)], *rest)

            return _Pieces(self._application(environ, start), chosen, answered)


class _Pieces:
    """An answer's body. The request is logged once the first piece is on its way, so that no client waits for a log."""

    def __init__(self, pieces: Iterable[bytes], chosen: str, answered: dict[str, Any]) -> None:
        self._pieces = pieces
        self._chosen = chosen
        self._answered = answered

    def __iter__(self) -> Iterator[bytes]:
        for piece in self._pieces:
            yield piece
            self._tell()

    def close(self) -> None:
        self._tell()
        if hasattr(self._pieces, "close"):
            self._pieces.close()

    def _tell(self) -> None:
        answered, self._answered = self._answered, {}
        if answered:
            with request_id(self._chosen):
                _log.info("request", **answered)
