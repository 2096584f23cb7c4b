"""kombu's Redis transport as a worker consumes with it: what needs no bookkeeping gets none."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Final

from kombu.transport import redis

from sandloom.broker.message import is_doorbell


class ConsumingQoS(redis.QoS):
    """Keeps what was taken and not yet acknowledged in Redis, as kombu does; but of doorbells it keeps nothing."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._doorbells: set[str] = set()

    def append(self, message: Any, delivery_tag: str) -> None:
        if is_doorbell(message.headers):
            self._doorbells.add(delivery_tag)
        else:
            super().append(message, delivery_tag)

    def ack(self, delivery_tag: str) -> None:
        if not self._was_doorbell(delivery_tag):
            super().ack(delivery_tag)

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        if not self._was_doorbell(delivery_tag):
            super().reject(delivery_tag, requeue=requeue)

    def _was_doorbell(self, delivery_tag: str) -> bool:
        with contextlib.suppress(KeyError):
            self._doorbells.remove(delivery_tag)
            return True
        return False


class ConsumingChannel(redis.Channel):
    """One client for every command but the blocking pop, which has ``client`` to itself.

    kombu builds a client with its 150 response callbacks for each command, which costs more than the command.
    """

    QoS = ConsumingQoS

    _create_client: Callable[[], Any]
    _shared: Any = None

    @contextlib.contextmanager
    def conn_or_acquire(self, client: Any = None) -> Iterator[Any]:
        yield client or self._shared_client()

    def _shared_client(self) -> Any:
        pool = self.pool  # another one after a connection was lost
        if self._shared is None or self._shared.connection_pool is not pool:
            self._shared = self._create_client()
        return self._shared


class ConsumingTransport(redis.Transport):
    Channel = ConsumingChannel


#: For Celery's ``broker_transport``.
CONSUMING_TRANSPORT: Final = f"{__name__}:{ConsumingTransport.__name__}"
