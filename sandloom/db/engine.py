"""Connections and transactions.

``read`` gives a consistent connection, ``write`` one transaction that either happens whole or not at all. A deadlock or
lost serialisation repeats the whole function, so it must not keep state outside. SQLite takes its writes one after
another, which is faster than contending for its lock. Sessions of servers are in autocommit, so that a
read is one round trip; a write says BEGIN and COMMIT itself, unless it is one statement.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from sqlalchemy import Connection, Engine, create_engine, event, exc, make_url
from sqlalchemy.pool import NullPool, PoolProxiedConnection

from sandloom.db import mysql, server_side
from sandloom.db.prepared import command
from sandloom.db.sessions import Sessions
from sandloom.errors import CommitUnknown, DatabaseDriverMissing, Unavailable

T = TypeVar("T")

_ATTEMPTS = 8
#: PostgreSQL SQLSTATEs: serialization_failure, deadlock_detected, lock_not_available.
_RETRY_SQLSTATES = frozenset({"40001", "40P01", "55P03"})


def _retryable(error: exc.DBAPIError) -> bool:
    original: Any = error.orig
    code = getattr(original, "pgcode", None)
    if code in _RETRY_SQLSTATES or code in server_side.FORGOTTEN:
        return True
    args = getattr(original, "args", ())
    if args and args[0] in mysql.RETRY_CODES:
        return True
    return "database is locked" in str(original)


def _outage(error: exc.DBAPIError) -> bool:
    if error.connection_invalidated or isinstance(error, (exc.OperationalError, exc.InterfaceError)):
        return not _retryable(error)
    return False


class Database:
    """One database for one process; thread-safe. ``read_only``: a file of SQLite is neither made nor changed."""

    def __init__(
        self, url: str, *, pool_size: int = 16, connect_timeout_seconds: int = 5, read_only: bool = False
    ) -> None:
        parsed = make_url(url)
        self.dialect = parsed.get_backend_name()
        if read_only and (file := sqlite_file(url)) is not None:
            parsed = parsed.set(database=f"file:{quote(str(file))}", query={"mode": "ro", "uri": "true"})
        options: dict[str, Any] = {"isolation_level": "AUTOCOMMIT"}
        if self.dialect == "sqlite":
            options = {"connect_args": {"timeout": 15.0, "check_same_thread": False}}
        elif self.dialect == "postgresql":
            options |= {
                "connect_args": _postgresql_arguments(connect_timeout_seconds),
                "executemany_mode": "values_only",
            }
        else:
            options |= {"connect_args": mysql.connect_arguments(connect_timeout_seconds)}
        if self.dialect != "sqlite":
            # A session that may be in a transaction is never used again: see _roll_back.
            options |= {"pool_reset_on_return": None}
        try:
            self.engine: Engine = create_engine(parsed, hide_parameters=True, poolclass=NullPool, **options)
        except (ModuleNotFoundError, exc.NoSuchModuleError):
            extra = "mysql" if self.is_mysql else "server"
            raise DatabaseDriverMissing(
                f"The driver of {parsed.drivername}:// is not installed; the extra sandloom[{extra}] brings one."
            ) from None
        self.sessions = Sessions(self.engine, pool_size)
        self._writer: _Writer | None = None
        if self.dialect == "sqlite":
            _prepare_sqlite(self.engine, read_only)
            self._writer = _Writer(self.engine)
        elif self.is_mysql:
            mysql.prepare(self.engine)

    @property
    def is_mysql(self) -> bool:
        """MariaDB or MySQL."""
        return self.dialect in ("mysql", "mariadb")

    def read(self, function: Callable[[Connection], T]) -> T:
        """Run ``function`` on a connection where every statement sees what is committed when it starts.

        Repeated once on a stale connection; ``Unavailable`` when the database does not answer.
        """
        for attempt in (1, 2):
            try:
                with self.sessions.lend() as connection:
                    return function(connection)
            except exc.DBAPIError as error:
                if not _outage(error) and not _retryable(error):
                    raise
                if attempt == 2:
                    raise Unavailable("The database does not answer; repeat the call.") from error
            except exc.TimeoutError as error:
                raise Unavailable("Every database connection is in use; repeat the call.") from error
        raise AssertionError("unreachable")

    def write(self, function: Callable[[Connection], T]) -> T:
        """Run ``function`` in one transaction and commit it.

        Deadlocks repeat it whole. A broken connection before COMMIT was sent repeats it once, since nothing happened;
        after that ``CommitUnknown`` is raised. ``Unavailable``: nothing was done.
        """
        if self._writer is not None:
            return self._writer.run(function)
        return _transact(self.sessions, self.dialect, function)

    def write_one(self, function: Callable[[Connection], T]) -> T:
        """Run ``function``, of which at most one statement changes rows, and which need not see one state of them.

        On PostgreSQL that statement is a transaction of its own, sent in one round trip. Deadlocks repeat the whole.
        ``CommitUnknown``: the connection broke, and nobody knows whether before or after. ``Unavailable``: nothing was
        done.
        """
        if self.dialect != "postgresql":
            return self.write(function)
        return _run_one(self.sessions, function)

    def dispose(self) -> None:
        """Close every connection; the object is not used afterwards."""
        if self._writer is not None:
            self._writer.close()
        self.sessions.close_idle()


def _transact(sessions: Sessions, dialect: str, function: Callable[[Connection], T]) -> T:
    reconnected = False
    begin = "BEGIN ISOLATION LEVEL READ COMMITTED" if dialect == "postgresql" else "BEGIN"
    for attempt in range(1, _ATTEMPTS + 1):
        committing = False
        try:
            with sessions.lend() as connection:
                try:
                    command(connection, begin)
                    result = function(connection)
                    committing = True
                    command(connection, "COMMIT")
                    return result
                except BaseException:
                    if not connection.invalidated and not connection.closed:
                        _roll_back(connection)
                    raise
        except exc.DBAPIError as error:
            if _retryable(error) and attempt < _ATTEMPTS:
                time.sleep(random.uniform(0, 0.002 * 2**attempt))
                continue
            if not _outage(error) and not _retryable(error):
                raise
            if committing and not _retryable(error):
                raise CommitUnknown from error
            if not reconnected and not _retryable(error):
                reconnected = True
                continue
            raise Unavailable("The database does not answer; repeat the call.") from error
        except exc.TimeoutError as error:
            raise Unavailable("Every database connection is in use; repeat the call.") from error
    raise AssertionError("unreachable")


def _run_one(sessions: Sessions, function: Callable[[Connection], T]) -> T:
    for attempt in range(1, _ATTEMPTS + 1):
        connected = False
        try:
            with sessions.lend() as connection:
                connected = True
                return function(connection)
        except exc.DBAPIError as error:
            if _retryable(error):
                if attempt == _ATTEMPTS:
                    raise Unavailable("The database is busy; repeat the call.") from error
                time.sleep(random.uniform(0, 0.002 * 2**attempt))
                continue
            if not _outage(error):
                raise
            if connected:
                raise CommitUnknown from error
            raise Unavailable("The database does not answer; repeat the call.") from error
        except exc.TimeoutError as error:
            raise Unavailable("Every database connection is in use; repeat the call.") from error
    raise AssertionError("unreachable")


def _roll_back(connection: Connection) -> None:
    """A session that may still be in a transaction is not used again."""
    try:
        connection.exec_driver_sql("ROLLBACK")
    except exc.DBAPIError:
        connection.invalidate()
    except BaseException:
        connection.invalidate()
        raise


def _postgresql_arguments(connect_timeout_seconds: int) -> Mapping[str, Any]:
    """A peer that vanished is noticed by the kernel, never waited for without bound."""
    return {
        "connect_timeout": connect_timeout_seconds,
        "keepalives_idle": 5,
        "keepalives_interval": 2,
        "keepalives_count": 3,
        "tcp_user_timeout": 15_000,
        "application_name": "sandloom",
        "options": f"-c lock_timeout=10000 -c idle_in_transaction_session_timeout=60000 {server_side.SESSION}",
    }


def sqlite_file(url: str) -> Path | None:
    """The file behind the URL, when it is one of SQLite."""
    parsed = make_url(url)
    name = parsed.database
    if parsed.get_backend_name() != "sqlite" or not name or name == ":memory:" or name.startswith("file:"):
        return None
    return Path(name)


def _prepare_sqlite(engine: Engine, read_only: bool) -> None:
    # The journal's mode is kept in the file.
    pragmas = [
        *([] if read_only else ["journal_mode=WAL", "synchronous=FULL"]),
        "busy_timeout=15000",
        "foreign_keys=ON",
    ]

    @event.listens_for(engine, "connect")
    def _connect(raw: Any, record: object) -> None:
        raw.isolation_level = None  # transactions begin where _Writer says so
        for pragma in pragmas:
            raw.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "reset")
    def _reset(raw: PoolProxiedConnection, record: object, state: object) -> None:
        raw.rollback()


class _Job:
    """One transaction, and once it is done what came of it."""

    __slots__ = ("answer", "done", "function", "problem")

    def __init__(self, function: Callable[[Connection], Any]) -> None:
        self.function = function
        self.done = False
        self.answer: Any = None
        self.problem: BaseException | None = None


class _Writer:
    """SQLite's one writer: the thread whose turn it is commits its own transaction with all that wait behind it.

    Without a thread of its own, which would cost each transaction two changes of threads.
    """

    _TOGETHER = 32

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._waiting: deque[_Job] = deque()
        self._connection: Connection | None = None
        self._open = True
        self._turn = threading.Lock()
        self._at_work: int | None = None

    def run(self, function: Callable[[Connection], T]) -> T:
        if self._at_work == threading.get_ident():
            raise RuntimeError("a transaction must not open another one")
        job = _Job(function)
        self._waiting.append(job)
        with self._turn:
            if not self._open and not job.done:
                raise Unavailable("The database was closed.")
            self._at_work = threading.get_ident()
            try:
                while not job.done:
                    self._commit_next()
            finally:
                self._at_work = None
        if job.problem is not None:
            try:
                raise job.problem
            finally:
                del job  # its problem leads here, and here to it
        answer: T = job.answer
        return answer

    def close(self) -> None:
        """What was handed in before is still done."""
        with self._turn:
            while self._waiting:
                self._commit_next()
            self._open = False
            self._let_go()

    def _commit_next(self) -> None:
        self._commit([self._waiting.popleft() for _ in range(min(self._TOGETHER, len(self._waiting)))])

    def _commit(self, batch: list[_Job]) -> None:
        """A job that fails takes nothing with it. Answers leave after the commit."""
        try:
            if self._connection is None:
                self._connection = self._engine.connect()
            if len(batch) == 1:
                _alone(self._connection, batch[0])
            else:
                _together(self._connection, batch)
        except BaseException as error:
            self._let_go()
            for job in batch:
                job.problem = Unavailable("The database cannot be written; repeat the call.")
                job.problem.__cause__ = error
        for job in batch:
            job.done = True

    def _let_go(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(exc.SQLAlchemyError):
                connection.invalidate()  # nobody gets it again, whatever state it is in
            connection.close()


def _alone(connection: Connection, job: _Job) -> None:
    command(connection, "BEGIN IMMEDIATE")
    try:
        job.answer = job.function(connection)
    except BaseException as error:
        command(connection, "ROLLBACK")
        job.problem = error
        return
    command(connection, "COMMIT")


def _together(connection: Connection, batch: list[_Job]) -> None:
    """One transaction, each job in a savepoint of its own."""
    command(connection, "BEGIN IMMEDIATE")
    for job in batch:
        command(connection, "SAVEPOINT job")
        try:
            job.answer = job.function(connection)
            command(connection, "RELEASE job")
        except BaseException as error:
            command(connection, "ROLLBACK TO job")
            command(connection, "RELEASE job")
            job.problem = error
    command(connection, "COMMIT")


def open_database(url: str, *, pool_size: int = 16, read_only: bool = False) -> Database:
    """Connects lazily; an unreachable server shows at the first call as ``Unavailable``."""
    return Database(url, pool_size=pool_size, read_only=read_only)
