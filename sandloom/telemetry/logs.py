"""structlog for our lines and for those of libraries, all on standard error."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping, MutableMapping
from functools import cache
from typing import Any, TextIO

import structlog
from structlog.typing import FilteringBoundLogger

from sandloom.telemetry.redaction import redact_event
from sandloom.telemetry.requests import current_request_id

#: Libraries whose lines below WARNING say nothing to an operator.
_QUIET = (
    "alembic.runtime.plugins", "amqp", "botocore", "celery.app.trace", "celery.beat", "celery.worker.strategy",
    "httpcore", "httpx", "kombu", "urllib3",
)  # fmt: skip


def configure(level: str = "info", fmt: str = "auto", stream: TextIO | None = None) -> None:
    """``level``: debug, info, warning or error. ``fmt``: json, console, or auto (console on a terminal).

    Lines go to standard error, or to ``stream``.
    """
    output = sys.stderr if stream is None else stream
    console = fmt == "console" or (fmt == "auto" and output.isatty())
    # Rendering an exception as text comes before the redaction, which then sees its words too.
    shared: list[Any] = [
        _add_request_id,
        structlog.stdlib.add_logger_name,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        redact_event,
    ]
    renderer: Any = structlog.dev.ConsoleRenderer(colors=output.isatty()) if console else _json()
    # Straight to the stream: a detour through the records and handlers of logging doubles the price of a line.
    structlog.configure(
        processors=[*shared, renderer],
        logger_factory=cache(lambda name=None: _Lines(output, name)),
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(output)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in _QUIET:
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))


def get_logger(name: str) -> FilteringBoundLogger:
    """A logger: ``log.info("event", key=value)``."""
    logger: FilteringBoundLogger = structlog.get_logger(name)
    return logger


class _Lines(structlog.WriteLogger):
    """Writes whole lines; ``name`` is where they come from."""

    def __init__(self, stream: TextIO, name: str | None) -> None:
        super().__init__(stream)
        self.name = name


def _json() -> structlog.processors.JSONRenderer:
    return structlog.processors.JSONRenderer(default=str)


def _add_request_id(_logger: object, _method: str, event: MutableMapping[str, Any]) -> Mapping[str, Any]:
    request = current_request_id()
    if request is not None:
        event.setdefault("request_id", request)
    return event
