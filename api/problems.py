"""Every failure as ``application/problem+json``."""

from __future__ import annotations

import json

from flask import Flask, Response, request
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from werkzeug.exceptions import HTTPException
from werkzeug.exceptions import MethodNotAllowed as WrongMethod

from sandloom.errors import (
    BodyTooLarge,
    MalformedRequest,
    MethodNotAllowed,
    NotFound,
    SandloomError,
    Unauthorized,
    Unavailable,
)
from sandloom.telemetry import get_logger

CONTENT_TYPE = "application/problem+json"
_log = get_logger("api.problems")


#: Statuses that only a server gives, before there is a request to route.
SERVER_TITLES = {414: "URI Too Long", 431: "Request Header Fields Too Large"}


def problem_bytes(error: SandloomError, status: int | None = None) -> bytes:
    """The body, in ASCII: a name that the error repeats may hold what is not UTF-8. ``status`` replaces the error's."""
    problem = error.to_problem()
    if status in SERVER_TITLES:
        problem |= {"status": status, "title": SERVER_TITLES[status]}
    return json.dumps(problem, separators=(",", ":"), default=str).encode()


def reason(error: SandloomError, status: int) -> str:
    """The phrase of the status line."""
    return SERVER_TITLES.get(status) or str(error.to_problem()["title"])


def problem_answer(error: SandloomError) -> Response:
    """The answer for ``error``, with the headers that its kind calls for."""
    response = Response(problem_bytes(error), status=error.status, content_type=CONTENT_TYPE)
    if error.retry_after_seconds is not None:
        response.headers["Retry-After"] = str(error.retry_after_seconds)
    if isinstance(error, Unauthorized):
        response.headers["WWW-Authenticate"] = 'Bearer realm="sandloom"'
    return response


def register(app: Flask) -> None:
    """Answer every exception that leaves a route."""
    app.register_error_handler(SandloomError, problem_answer)
    app.register_error_handler(HTTPException, _http)
    app.register_error_handler(OperationalError, _database)
    app.register_error_handler(InterfaceError, _database)
    app.register_error_handler(PoolTimeout, _database)
    app.register_error_handler(DBAPIError, _statement)
    app.register_error_handler(Exception, _unexpected)


def _http(error: HTTPException) -> Response:
    """werkzeug's own: an address that is not there, a method that it does not take, a request it cannot read."""
    if isinstance(error, WrongMethod):
        response = problem_answer(MethodNotAllowed())
        response.headers["Allow"] = ", ".join(sorted(error.valid_methods or ()))
        return response
    known = {404: NotFound, 413: BodyTooLarge}
    if (error.code or 500) < 500:
        return problem_answer(known.get(error.code or 400, MalformedRequest)())
    return _unexpected(error)


def _database(error: Exception) -> Response:
    _log.warning("database unavailable", error=type(error).__name__, path=request.path[:512], exc_info=True)
    return problem_answer(Unavailable("The database does not answer at the moment; repeat the call."))


def _statement(error: DBAPIError) -> Response:
    return _database(error) if error.connection_invalidated else _unexpected(error)


def _unexpected(error: Exception) -> Response:
    _log.error("unhandled exception", method=request.method, path=request.path[:512], exc_info=error)
    return problem_answer(SandloomError())
