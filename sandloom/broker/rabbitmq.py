"""RabbitMQ's own connection, for what is asked of it seldom: is it there, make a queue, delete one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, Final

from kombu import Connection, Queue

from sandloom.broker.queues import broker_url, is_amqp, tls_options, transport_options

TIMEOUT_SECONDS: Final = 3.0


@contextlib.contextmanager
def connected(url: str) -> Iterator[Any]:
    """An ``amqp.Connection`` for the ``with`` block. Raises what py-amqp raises."""
    options = transport_options(url, "", consume=False, timeout_seconds=TIMEOUT_SECONDS)
    connection = Connection(
        broker_url(url), ssl=tls_options(url), connect_timeout=TIMEOUT_SECONDS, transport_options=options
    )
    # Connection.connect retries and hides why.
    transport: Any = connection.transport
    established = transport.establish_connection()
    try:
        yield established
    finally:
        transport.close_connection(established)


def make_queues(url: str, queues: Sequence[Queue]) -> bool:
    """Make queues before anybody is told of them, so that nothing sent to them is refused; whether they are there.

    On other brokers a queue is there as soon as something is in it.
    """
    if not is_amqp(url):
        return True
    try:
        with connected(url) as connection:
            channel = connection.channel()
            for queue in queues:
                queue(channel).declare()
    except Exception:  # clients raise what they like; a consumer makes its queues when it connects
        return False
    return True
