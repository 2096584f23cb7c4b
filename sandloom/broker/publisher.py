"""Sends messages to workers, quickly or not at all."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping
from typing import Any, Final

import redis

from sandloom.broker.links import Links, LinksBusy
from sandloom.broker.message import RING_TASK, MessageRefused, TaskMessage, ring_arguments, task_message
from sandloom.broker.queues import PUBLISH_TIMEOUT_SECONDS
from sandloom.broker.refusals import why_refused
from sandloom.errors import BrokerRefused, Unavailable
from sandloom.ids import ExecKey
from sandloom.streams.breaker import Breaker

log = logging.getLogger(__name__)

MAX_LINKS: Final = 16
BREAKER_SECONDS: Final = 1.0
_DOWN: Final = "the broker does not answer"
#: A server that is there but does not answer: a second try would only double the wait.
_TIMEOUTS: Final = (TimeoutError, redis.TimeoutError)


class KombuPublisher:
    """Implements ``sandloom.contracts.ports.Publisher`` over Redis, RabbitMQ or the in-process transport.

    Thread-safe. Connects when first used, in the process that uses it. A message may be sent twice when a connection
    breaks at the wrong moment; whoever receives it can tell.
    """

    def __init__(
        self,
        broker_url: str,
        *,
        namespace: str = "",
        max_links: int = MAX_LINKS,
        timeout_seconds: float = PUBLISH_TIMEOUT_SECONDS,
    ) -> None:
        self._timeout_seconds = timeout_seconds
        self._links = Links(broker_url, namespace, max_links, timeout_seconds)
        self._breaker = Breaker(BREAKER_SECONDS)

    def ring(self, queue: str, key: ExecKey, generation: int) -> bool:
        """Send the doorbell of one exec; False when the broker did not take it within about a second."""
        try:
            self.send(queue, RING_TASK, ring_arguments(key, generation))
        except Unavailable:
            return False
        except Exception:
            # The row is safe and will be rung again: nothing that goes wrong here may fail the request.
            log.exception("a doorbell could not be sent")
            return False
        return True

    def send(
        self,
        queue: str,
        task: str,
        kwargs: Mapping[str, Any],
        *,
        task_id: str | None = None,
        ignore_result: bool = True,
    ) -> str:
        """Send one task message and return its id. Raises ``Unavailable`` when the broker did not take it, and
        ``TypeError`` or ``ValueError`` for arguments that are not JSON."""
        task_id = task_id or str(uuid.uuid4())
        message = task_message(task, kwargs, task_id=task_id, ignore_result=ignore_result)
        failures = self._breaker.failures
        if not self._breaker.allow():
            raise Unavailable(_DOWN)
        try:
            with self._links.turn():
                # Whoever waited for its turn while others failed would only fail the same way, later.
                if self._breaker.failures != failures:
                    raise Unavailable(_DOWN)
                self._try(queue, message)
        except LinksBusy:
            raise Unavailable("too many messages are being sent at once") from None
        return task_id

    @property
    def failing(self) -> bool:
        """Whether the broker did not take the last message; False before the first one."""
        return self._breaker.is_open

    def close(self) -> None:
        self._links.close()

    def _try(self, queue: str, message: TaskMessage) -> None:
        try:
            self._publish(queue, message)
        except MessageRefused as error:
            self._breaker.success()
            raise Unavailable(f"the broker refused the message: {error}") from None
        except Exception as error:
            # Transports raise what they like (redis, amqp, OSError); none of it may show a URL with its password.
            refused = why_refused(error)
            if self._breaker.failure():
                log.warning("the broker does not take messages (%s)", refused or type(error).__name__)
            if refused is not None:
                raise BrokerRefused(f"the broker: {refused}", reason=refused) from None
            raise Unavailable(_DOWN) from None
        self._breaker.success()

    def _publish(self, queue: str, message: TaskMessage) -> None:
        """A link that idled through a restart of the broker is broken: then, and only then, try once more."""
        reused = False
        try:
            with self._links.borrow() as link:
                reused = link.used
                link.publish(queue, message)
        except (*_TIMEOUTS, MessageRefused):
            raise
        except Exception:
            if not reused:
                raise
            with self._links.borrow(fresh=True) as link:
                link.publish(queue, message)
