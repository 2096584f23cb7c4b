"""Two transactions on PostgreSQL in a chosen order: the first has done its work and not yet committed, then the second
begins."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from sqlalchemy import Connection, text

from sandloom.db import Database

T = TypeVar("T")

_BLOCKED = text("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'")


class PausedDatabase:
    """``Database`` whose first transaction waits for ``go`` before it commits; later ones are ordinary."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self.worked = threading.Event()
        self.go = threading.Event()
        self.dialect = db.dialect
        self.engine = db.engine

    def read(self, function: Callable[[Connection], T]) -> T:
        return self._db.read(function)

    def write(self, function: Callable[[Connection], T]) -> T:
        def work(connection: Connection) -> T:
            result = function(connection)
            self.worked.set()
            assert self.go.wait(30)
            return result

        return self._db.write(function if self.go.is_set() else work)

    def write_one(self, function: Callable[[Connection], T]) -> T:
        return self.write(function)


def interleave(db: Database, first: Callable[[PausedDatabase], Any], second: Callable[[], Any]) -> tuple[Any, Any]:
    """Both results (or exceptions). ``first`` is held before its COMMIT until ``second`` waits for it or is done."""
    paused = PausedDatabase(db)
    with ThreadPoolExecutor(2) as pool:
        one = pool.submit(_caught, lambda: first(paused))
        while not (paused.worked.wait(0.01) or one.done()):
            pass
        two = pool.submit(_caught, second)
        while not (two.done() or _blocked(db)):
            pass
        paused.go.set()
        return _answer(one), _answer(two)


def _blocked(db: Database) -> bool:
    return bool(db.read(lambda connection: connection.execute(_BLOCKED).scalar_one()))


def _caught(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except Exception as error:
        return error


def _answer(future: Future[Any]) -> Any:
    return future.result(60)
