"""Two transactions on two connections in a chosen order: the first has done its work and not yet committed, then the
second begins."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, TypeVar, cast

from sqlalchemy import Connection

from sandloom.db import Database

T = TypeVar("T")

#: How many wait for a row that somebody else holds.
_WAITING = {
    "postgresql": "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
    "AND wait_event_type = 'Lock'",
    "mariadb": "SELECT VARIABLE_VALUE + 0 FROM information_schema.GLOBAL_STATUS "
    "WHERE VARIABLE_NAME = 'Innodb_row_lock_current_waits'",
}


class _Watched:
    """``Database`` that says when a transaction of it begins."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self.dialect = db.dialect
        self.engine = db.engine
        self.begun = threading.Event()

    def read(self, function: Callable[[Connection], T]) -> T:
        return self._db.read(function)

    def write(self, function: Callable[[Connection], T]) -> T:
        self.begun.set()
        return self._db.write(function)

    def write_one(self, function: Callable[[Connection], T]) -> T:
        self.begun.set()
        return self._db.write_one(function)


class _Paused(_Watched):
    """``Database`` whose first transaction waits for ``go`` before it commits; later ones are ordinary."""

    def __init__(self, db: Database) -> None:
        super().__init__(db)
        self.worked = threading.Event()
        self.go = threading.Event()

    def write(self, function: Callable[[Connection], T]) -> T:
        def work(connection: Connection) -> T:
            result = function(connection)
            self.worked.set()
            assert self.go.wait(60)
            return result

        return self._db.write(function if self.go.is_set() else work)

    def write_one(self, function: Callable[[Connection], T]) -> T:
        return self.write(function)


def interleave(
    db: Database, rival: Database, first: Callable[[Database], Any], second: Callable[[Database], Any]
) -> tuple[Any, Any]:
    """Both results (or exceptions). ``first`` is held before its COMMIT until ``second`` waits for it or is done.

    ``rival`` is another connection to the database of ``db``: the same pool, or for SQLite the same file.
    """
    paused, watched = _Paused(db), _Watched(rival)
    with ThreadPoolExecutor(2) as pool:
        one = pool.submit(_caught, lambda: first(cast(Database, paused)))
        while not (paused.worked.wait(0.01) or one.done()):
            pass
        two = pool.submit(_caught, lambda: second(cast(Database, watched)))
        while not (wait([two], 0.003).done or _blocked(watched)):
            pass
        paused.go.set()
        return _answer(one), _answer(two)


def _blocked(second: _Watched) -> bool:
    if second.dialect == "sqlite":  # whoever begins a transaction waits for the end of the other one
        return second.begun.wait(0.01)
    query = _WAITING[second.dialect]
    return bool(second.read(lambda connection: connection.exec_driver_sql(query).scalar_one()))


def _caught(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except Exception as error:
        return error


def _answer(future: Future[Any]) -> Any:
    return future.result(60)
