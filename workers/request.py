"""Celery's request, without the arguments that remote control would show to whoever asks."""

from __future__ import annotations

from typing import Any

from celery.worker.request import Request as CeleryRequest

from sandloom.broker.message import REDACTED


class Request(CeleryRequest):
    """``inspect active`` and Flower see that a task runs, never what it was given."""

    def info(self, safe: bool = False) -> Any:
        return {**super().info(safe=safe), "args": REDACTED, "kwargs": REDACTED}
