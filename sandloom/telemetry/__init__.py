"""Logs on standard error, with a request id and without secrets."""

from __future__ import annotations

from sandloom.telemetry.logs import configure, get_logger
from sandloom.telemetry.redaction import redact
from sandloom.telemetry.requests import (
    current_request_id,
    is_request_id,
    new_request_id,
    request_id,
)

__all__ = [
    "configure", "current_request_id", "get_logger", "is_request_id", "new_request_id", "redact", "request_id",
]  # fmt: skip
