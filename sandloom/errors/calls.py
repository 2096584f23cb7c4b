"""Errors of the call itself: how it was sent, not what it asks for."""

from __future__ import annotations

from typing import Any, ClassVar

from sandloom.errors.base import Category, SandloomError


class Unauthorized(SandloomError):
    """Send a valid token as 'Authorization: Bearer <token>'."""

    code, status, category = "UNAUTHORIZED", 401, Category.CHANGE


class HostNotAllowed(SandloomError):
    """The MCP endpoint is not served under this name; the operator can add it to SANDBOX_MCP_ALLOWED_HOSTS."""

    code, status, category = "SANDBOX_MCP_HOST_NOT_ALLOWED", 421, Category.CHANGE


class OriginNotAllowed(SandloomError):
    """Web pages of this origin may not use the MCP endpoint; the operator can add it to SANDBOX_MCP_ALLOWED_HOSTS."""

    code, status, category = "SANDBOX_MCP_ORIGIN_NOT_ALLOWED", 403, Category.STOP


class NotFound(SandloomError):
    """There is nothing at this address."""

    code, status, category = "NOT_FOUND", 404, Category.CHANGE


class MethodNotAllowed(SandloomError):
    """This address does not take that method; the Allow header lists those it takes."""

    code, status, category = "METHOD_NOT_ALLOWED", 405, Category.CHANGE


class MalformedRequest(SandloomError):
    """The request cannot be read: the body must be a JSON object in UTF-8."""

    code, status, category = "MALFORMED_REQUEST", 400, Category.CHANGE


class UnsupportedMediaType(SandloomError):
    """Send the body as application/json."""

    code, status, category = "UNSUPPORTED_MEDIA_TYPE", 415, Category.CHANGE


class ValidationFailed(SandloomError):
    """A field of the request is not acceptable; 'errors' names it."""

    code, status, category = "VALIDATION_FAILED", 422, Category.CHANGE

    def __init__(self, detail: str | None = None, **extra: Any) -> None:
        super().__init__(detail, **extra)
        # For the text, where there is no body to look into. An answer may hold anything.
        given = extra.get("errors")
        found = [entry for entry in given if isinstance(entry, dict)] if isinstance(given, list) else []
        if found:
            named = "; ".join(f"{entry.get('field') or 'the call'}: {entry.get('message')}" for entry in found)
            self.args = (f"{self.detail.partition('; ')[0].rstrip('.')}: {named}",)


class BodyTooLarge(SandloomError):
    """The body is larger than this route accepts."""

    code, status, category = "BODY_TOO_LARGE", 413, Category.CHANGE


class RequestTimeout(SandloomError):
    """The body did not arrive in time; send it again."""

    code, status, category, retryable = "REQUEST_TIMEOUT", 408, Category.WAIT, True


class RangeNotSatisfiable(SandloomError):
    """The requested range lies outside the file."""

    code, status, category = "RANGE_NOT_SATISFIABLE", 416, Category.CHANGE


class Unavailable(SandloomError):
    """A part the service needs does not answer at the moment; repeat the call."""

    code, status, category, retryable = "SERVICE_UNAVAILABLE", 503, Category.WAIT, True


class BrokerRefused(Unavailable):
    """The broker, the bus or the result backend refuses the connection; the message names the setting to change."""

    code, status, category, retryable = "SANDBOX_BROKER_REFUSED", 503, Category.STOP, False
    exit_code: ClassVar[int] = 2


class CommitUnknown(Unavailable):
    """The connection broke while the transaction was being committed; read the rows to learn whether it happened."""

    code = "SANDBOX_COMMIT_UNKNOWN"
