"""Every failure that a client can see, as a class.

The tree::

    SandloomError
    ├── InvalidRequest …      category CHANGE: the caller must change the call
    ├── …                     category WAIT: the same call may succeed later
    └── …                     category STOP: neither waiting nor changing helps

A class carries its stable ``code``, the HTTP ``status``, the ``category`` and whether repeating the very same call is
safe and useful (``retryable``). Its docstring is the default message. ``REGISTRY`` maps codes to classes, for HTTP in
one direction and for clients in the other.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, ClassVar


class Category(StrEnum):
    """What the caller should do."""

    CHANGE = "change"
    WAIT = "wait"
    STOP = "stop"


_REMEDIES = {
    Category.CHANGE: "change the call",
    Category.WAIT: "call again later",
    Category.STOP: "ask whoever runs the service",
}

REGISTRY: dict[str, type[SandloomError]] = {}


class SandloomError(Exception):
    """The service met an unexpected condition; the request id leads to its log."""

    code: ClassVar[str] = "SANDBOX_INTERNAL_ERROR"
    status: ClassVar[int] = 500
    category: ClassVar[Category] = Category.STOP
    retryable: ClassVar[bool] = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.code in REGISTRY:
            raise TypeError(f"two errors share the code {cls.code}")
        REGISTRY[cls.code] = cls

    def __init__(self, detail: str | None = None, **extra: Any) -> None:
        self.detail = detail or " ".join((type(self).__doc__ or "").split())
        self.extra = extra
        super().__init__(self.detail)

    @property
    def retry_after_seconds(self) -> int | None:
        """Seconds for a ``Retry-After`` header; errors of category WAIT always have one."""
        value = self.extra.get("retry_after_seconds")
        if value is None and self.category is Category.WAIT:
            return 1
        return value

    @property
    def remedy(self) -> str:
        """What to do about it: what the docstring says after its first semicolon, else by category."""
        _, _, told = " ".join((type(self).__doc__ or "").split()).partition("; ")
        return told.rstrip(".") or _REMEDIES[self.category]

    def to_problem(self) -> dict[str, Any]:
        """The RFC 9457 body (``application/problem+json``)."""
        return {
            "type": "about:blank",
            "status": self.status,
            "title": _TITLES.get(self.status, "Error"),
            "detail": self.detail,
            "code": self.code,
            **{k: v for k, v in self.extra.items() if v is not None},
        }

    @staticmethod
    def from_problem(problem: dict[str, Any]) -> SandloomError:
        """The exception for a problem body; an unknown code becomes a plain ``SandloomError``."""
        known = {"type", "status", "title", "detail", "code"}
        extra = {k: v for k, v in problem.items() if k not in known and isinstance(k, str)}
        cls = REGISTRY.get(str(problem.get("code")), SandloomError)
        return cls(str(problem.get("detail") or "") or None, **extra)


REGISTRY[SandloomError.code] = SandloomError

_TITLES = {
    400: "Bad Request", 401: "Unauthorized", 403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed",
    408: "Request Timeout", 409: "Conflict", 410: "Gone", 411: "Length Required", 413: "Content Too Large",
    415: "Unsupported Media Type", 416: "Range Not Satisfiable", 421: "Misdirected Request",
    422: "Unprocessable Content", 429: "Too Many Requests", 431: "Request Header Fields Too Large",
    500: "Internal Server Error", 501: "Not Implemented", 503: "Service Unavailable", 507: "Insufficient Storage",
}  # fmt: skip
