"""Publishing through kombu: in one process, and to RabbitMQ, which tells what became of each message."""

from __future__ import annotations

import contextlib
from typing import Any

from amqp.exceptions import MessageNacked
from kombu import Connection, Producer

from sandloom.broker.message import (
    CONTENT_ENCODING,
    CONTENT_TYPE,
    DELIVERY_MODE,
    TRANSIENT,
    MessageRefused,
    TaskMessage,
)


class KombuLink:
    """A connection of kombu, its channel and a producer."""

    def __init__(self, connection: Connection, timeout_seconds: float) -> None:
        self._timeout_seconds = timeout_seconds
        # Connection.connect and default_channel retry with sleeps of seconds; its transport does not.
        self._transport: Any = connection.transport
        self._established = self._transport.establish_connection()
        try:
            self._channel: Any = self._transport.create_channel(self._established)
            self._producer: Any = Producer(self._channel, auto_declare=False)
        except BaseException:
            self.close()
            raise
        self.used = False

    def publish(self, queue: str, message: TaskMessage) -> None:
        self._publish(queue, message)

    def _publish(self, queue: str, message: TaskMessage, **options: Any) -> None:
        self._producer.publish(
            message.body,
            exchange="",
            routing_key=queue,
            content_type=CONTENT_TYPE,
            content_encoding=CONTENT_ENCODING,
            headers=message.headers,
            retry=False,
            confirm_timeout=self._timeout_seconds,
            **{"delivery_mode": DELIVERY_MODE, **options},
            **message.properties,
        )

    def close(self) -> None:
        with contextlib.suppress(Exception):  # a broken connection may fail in any way when it is closed
            self._transport.close_connection(self._established)


class AmqpLink(KombuLink):
    """To RabbitMQ, with publisher confirms: ``publish`` returns once the message is in its queue.

    RabbitMQ drops what is for no queue unless it is told that delivery is mandatory.
    """

    def __init__(self, connection: Connection, timeout_seconds: float) -> None:
        super().__init__(connection, timeout_seconds)
        self._returned = False
        self._channel.events["basic_return"].add(self._on_return)

    def publish(self, queue: str, message: TaskMessage) -> None:
        self._returned = False
        # A doorbell is in its row, and who asks over the bus notices: a confirm that waits for the disk buys nothing.
        mode = TRANSIENT if message.headers["ignore_result"] else DELIVERY_MODE
        try:
            self._publish(queue, message, mandatory=True, delivery_mode=mode)
        except MessageNacked:
            raise MessageRefused("the queue is full") from None
        if self._returned:
            raise MessageRefused("nobody made this queue, so its worker is not there")

    def _on_return(self, *_: Any) -> None:
        self._returned = True
