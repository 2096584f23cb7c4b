"""Calls of the REST interface from inside a request, for the same caller."""

from __future__ import annotations

import io
import json
from typing import Any
from urllib.parse import urlencode

from flask import Flask, Request, Response

from api.request_ids import ENVIRON_KEY
from sandloom.errors import SandloomError
from sandloom.mcp.rest import Ask, Reply
from sandloom.sdk.http import address
from sandloom.telemetry import get_logger

#: Who calls, in whose name, over which connection; everything else belongs to the outer request alone.
_KEPT = ("HTTP_AUTHORIZATION", "HTTP_X_SANDBOX_TENANT", "HTTP_HOST", ENVIRON_KEY)
_KEPT_BEGINNINGS = ("wsgi.", "gunicorn.", "waitress.", "SERVER_", "REMOTE_")
_log = get_logger("api.mcp")


class InnerCalls:
    """Serves asks by the application's own routes, in this thread; authorization is checked anew for each."""

    def __init__(self, app: Flask, outer: Request) -> None:
        self._app = app
        self._environ = {
            name: value for name, value in outer.environ.items() if name in _KEPT or name.startswith(_KEPT_BEGINNINGS)
        }

    async def __call__(self, ask: Ask) -> Reply:
        """Raises the SandloomError of an answer of 400 and above."""
        with self._app.request_context(self._inner(ask)):
            response = self._app.full_dispatch_request()
            try:
                content = response.get_data()
            finally:
                response.close()
        _log.info("mcp call", method=ask.method, path=ask.path[:512], status=response.status_code)
        if response.status_code >= 400:
            raise _problem(response, content)
        return Reply(dict(response.headers), content)

    def _inner(self, ask: Ask) -> dict[str, Any]:
        body = b"" if ask.body is None else json.dumps(ask.body).encode()
        return {
            **self._environ,
            "REQUEST_METHOD": ask.method,
            "SCRIPT_NAME": "",
            "PATH_INFO": address(ask.path),
            "QUERY_STRING": urlencode(ask.query),
            "CONTENT_TYPE": "" if ask.body is None else "application/json",
            "CONTENT_LENGTH": str(len(body)),
            "wsgi.input": io.BytesIO(body),
            **{f"HTTP_{name.upper().replace('-', '_')}": value for name, value in ask.headers.items()},
        }


def _problem(response: Response, content: bytes) -> SandloomError:
    problem = json.loads(content)
    if response.retry_after is not None and "retry_after_seconds" not in problem:
        problem["retry_after_seconds"] = int(response.headers["Retry-After"])
    return SandloomError.from_problem(problem)
