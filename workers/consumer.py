"""Celery's consumer, made safe against what anyone with broker access may send."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from celery.worker.consumer import Consumer as CeleryConsumer
from celery.worker.control import Panel

from sandloom.broker.message import is_doorbell
from sandloom.telemetry import get_logger
from workers.app import WorkerApp
from workers.counters import counters
from workers.doorbell import read

log = get_logger("sandloom.workers.consumer")

#: Remote control that only looks, switches task events, or cancels a task whose id is known.
ALLOWED_CONTROL = frozenset(
    {
        "ping", "stats", "active", "reserved", "scheduled", "registered", "active_queues", "revoked", "conf", "clock",
        "report", "hello", "query_task", "heartbeat", "enable_events", "disable_events", "revoke", "terminate",
    }
)  # fmt: skip


def restrict_remote_control() -> None:
    """Broker access is not operator access: nobody stops, resizes or redirects a worker by a broadcast."""
    for name in set(Panel.data) - ALLOWED_CONTROL:
        del Panel.data[name]


class Consumer(CeleryConsumer):
    """Drops and counts what cannot be used, without showing its content, and never ends because of it."""

    app: WorkerApp
    connection_errors: tuple[type[BaseException], ...]
    channel_errors: tuple[type[BaseException], ...]

    def create_task_handler(self, *args: Any, **kwargs: Any) -> Callable[[Any], None]:
        handle = super().create_task_handler(*args, **kwargs)
        recoverable = tuple(self.connection_errors) + tuple(self.channel_errors)

        def on_task_received(message: Any) -> None:
            try:
                if is_doorbell(message.headers):
                    self._hear(message)
                else:
                    handle(message)
            except recoverable:
                raise
            except Exception as error:
                self._drop(message, error)

        return on_task_received

    def _hear(self, message: Any) -> None:
        """A doorbell needs nothing of what Celery makes of a task. Its row is safe: acknowledged before all else."""
        doorbell = read(message)
        if doorbell is None:
            return self._drop(message, None)
        message.ack_log_error(log, self.connection_errors)
        self.app.reception.ring(doorbell)

    def _drop(self, message: Any, error: BaseException | None) -> None:
        counters.add("messages_dropped")
        log.warning("message dropped", reason=type(error).__name__ if error else "unknown", queue=_queue_of(message))
        message.reject_log_error(log, self.connection_errors)

    def on_decode_error(self, message: Any, exc: BaseException) -> None:
        self._drop(message, exc)

    def on_unknown_message(self, body: Any, message: Any) -> None:
        self._drop(message, None)

    def on_unknown_task(self, body: Any, message: Any, exc: BaseException) -> None:
        self._drop(message, exc)

    def on_invalid_task(self, body: Any, message: Any, exc: BaseException) -> None:
        self._drop(message, exc)


def _queue_of(message: Any) -> str:
    return str((message.delivery_info or {}).get("routing_key"))[:128]
