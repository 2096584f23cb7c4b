"""Statements that are built and turned into SQL once.

Building an expression anew for each call, and SQLAlchemy's way of executing it, cost several times what the driver
needs. A ``Query`` or a ``Write`` stands at module level, has a ``bindparam`` for everything that varies, keeps its text
by dialect and goes to the driver directly; on PostgreSQL the server keeps it too, see ``server_side``. Errors are
SQLAlchemy's all the same, and where somebody listens to its events, so is the way.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter, methodcaller
from typing import Any, TypeVar

from sqlalchemy import Connection, Dialect, Select, exc
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.dml import UpdateBase

from sandloom.db import server_side
from sandloom.db.server_side import ServerSide

T = TypeVar("T")
Arguments = dict[str, Any] | tuple[Any, ...]
_Process = Callable[[Any], Any]
_Processors = list[tuple[int, _Process]]

_rows: Callable[[Any], list[Sequence[Any]]] = methodcaller("fetchall")
_count: Callable[[Any], int] = attrgetter("rowcount")


def command(connection: Connection, sql: str) -> None:
    """BEGIN, COMMIT and the like."""
    if _is_listened_to(connection):
        connection.exec_driver_sql(sql)
    else:
        _execute(connection, sql, None, (), _count)


class Write:
    """An INSERT, UPDATE or DELETE without RETURNING.

    ``columns``: for an INSERT, those whose values come with each call under their own names. ``name``: what the server
    calls it.
    """

    def __init__(self, statement: UpdateBase, columns: Sequence[str] | None = None, name: str = "write") -> None:
        self._statement = statement
        self._name = name
        self._columns = columns
        self._texts: dict[type[Dialect], _Text] = {}

    def run(self, connection: Connection, values: Mapping[str, Any]) -> int:
        """How many rows were inserted or changed. KeyError when a value is missing."""
        # Two threads may compile at once; they come to the same result.
        text = self._texts.get(type(connection.dialect)) or self._compile(connection.dialect)
        arguments = text.arguments(values)
        if _is_listened_to(connection):
            return connection.exec_driver_sql(text.sql, arguments).rowcount
        return _execute(connection, text.sql, text.server_side, arguments, _count)

    def _compile(self, dialect: Dialect) -> _Text:
        compiled = self._statement.compile(dialect=dialect, column_keys=self._columns)
        text = self._texts[type(dialect)] = _Text(compiled, dialect, self._name)
        return text


class Query:
    """A SELECT. Its rows are named tuples. ``name``: what the server calls it."""

    def __init__(self, statement: Select[Any], name: str = "query") -> None:
        self._statement = statement
        self._name = name
        row: Any = namedtuple("Row", statement.selected_columns.keys())  # type: ignore[misc]
        self._make_row: Callable[[Sequence[Any]], Any] = row._make
        self._texts: dict[type[Dialect], tuple[_Text, _Processors]] = {}

    def one_or_none(self, connection: Connection, values: Mapping[str, Any]) -> Any | None:
        """The row that a key finds, or None."""
        found = self.all(connection, values)
        return found[0] if found else None

    def all(self, connection: Connection, values: Mapping[str, Any]) -> Sequence[Any]:
        """Every row, in order. KeyError when a value is missing."""
        if _is_listened_to(connection):
            return connection.execute(self._statement, values).all()
        text, processors = self._texts.get(type(connection.dialect)) or self._compile(connection.dialect)
        rows = _execute(connection, text.sql, text.server_side, text.arguments(values), _rows)
        if processors:
            rows = [_processed(row, processors) for row in rows]
        return [self._make_row(row) for row in rows]

    def _compile(self, dialect: Dialect) -> tuple[_Text, _Processors]:
        processors: _Processors = []
        for place, column in enumerate(self._statement.selected_columns):
            process = column.type.dialect_impl(dialect).result_processor(dialect, None)
            if process is not None:
                processors.append((place, process))
        text = _Text(self._statement.compile(dialect=dialect), dialect, self._name), processors
        self._texts[type(dialect)] = text
        return text


class _Text:
    """SQL for a driver, and how its arguments are made."""

    def __init__(self, compiled: Any, dialect: Dialect, name_on_server: str) -> None:
        assert isinstance(compiled, SQLCompiler)
        assert not compiled.post_compile_params, "the text must not depend on values, as that of in_() does"
        self.sql = compiled.string
        self._order = compiled.positiontup
        self._processors: list[tuple[str, _Process]] = []
        self._constants: dict[str, Any] = {}
        for parameter, name in compiled.bind_names.items():
            process = parameter.type.dialect_impl(dialect).bind_processor(dialect)
            if parameter.required and process is not None:
                self._processors.append((name, process))
            elif not parameter.required:
                value = compiled.params[name]
                self._constants[name] = value if process is None else process(value)
        self.server_side = ServerSide(name_on_server, compiled, dialect) if server_side.is_possible(dialect) else None

    def arguments(self, values: Mapping[str, Any]) -> Arguments:
        merged = {**self._constants, **values}
        for name, process in self._processors:
            merged[name] = process(merged[name])
        return merged if self._order is None else tuple([merged[name] for name in self._order])


def _processed(row: Sequence[Any], processors: _Processors) -> Sequence[Any]:
    values = list(row)
    for place, process in processors:
        values[place] = process(values[place])
    return values


def _is_listened_to(connection: Connection) -> bool:
    return bool(connection.engine.dispatch.before_cursor_execute)


def _execute(
    connection: Connection,
    sql: str,
    kept: ServerSide | None,
    arguments: Arguments,
    take: Callable[[Any], T],
) -> T:
    dialect = connection.dialect
    raw = connection.connection
    try:
        cursor = raw.cursor()
        if kept is not None:
            sql = kept.ready(connection, cursor) or sql
        cursor.execute(sql, arguments)
        return take(cursor)
    except dialect.loaded_dbapi.Error as error:
        server_side.learn(dialect, error)
        if dialect.is_disconnect(error, raw.dbapi_connection, None):
            # SQLAlchemy then sees for itself what is broken, and raises.
            connection.exec_driver_sql("SELECT 1")
        raise exc.DBAPIError.instance(
            sql, None, error, dialect.loaded_dbapi.Error, hide_parameters=True, dialect=dialect
        ) from error
