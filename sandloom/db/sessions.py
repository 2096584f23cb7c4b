"""Sessions that stay open between calls: to take one from SQLAlchemy's pool costs several times what this does."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Iterator

from sqlalchemy import Connection, Engine, exc

_WAIT_SECONDS = 15


class Sessions:
    """At most ``size`` of them at once, over an engine without a pool. Thread-safe.

    The one that was used last is lent first, so that what the server keeps for it is at hand.
    """

    def __init__(self, engine: Engine, size: int) -> None:
        self._engine = engine
        self._turns = threading.BoundedSemaphore(size)
        self._idle: deque[Connection] = deque()

    @contextlib.contextmanager
    def lend(self) -> Iterator[Connection]:
        """A session for one call. Whoever leaves it inside a transaction of the server's must invalidate it.

        Raises ``exc.TimeoutError`` when all stay in use, and what connecting raises.
        """
        if not self._turns.acquire(timeout=_WAIT_SECONDS):
            raise exc.TimeoutError("every session is in use")
        try:
            connection = self._take()
            try:
                yield connection
            finally:
                self._give_back(connection)
        finally:
            self._turns.release()

    def close_idle(self) -> None:
        """Close those that nobody uses now."""
        with contextlib.suppress(IndexError):
            while True:
                _close(self._idle.pop())

    def _take(self) -> Connection:
        try:
            return self._idle.pop()
        except IndexError:
            return self._engine.connect()

    def _give_back(self, connection: Connection) -> None:
        if connection.in_transaction():
            # SQLAlchemy's own, which began with its first statement; it must not hold the next call's.
            with contextlib.suppress(exc.DBAPIError):
                connection.rollback()
        if connection.invalidated or connection.closed:
            # What broke this one has most likely broken the others.
            _close(connection)
            self.close_idle()
        else:
            self._idle.append(connection)


def _close(connection: Connection) -> None:
    with contextlib.suppress(exc.SQLAlchemyError):
        connection.close()
