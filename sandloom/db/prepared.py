"""Writes that are built and turned into SQL once.

Building an expression anew for each call and looking up its text again costs several times what the driver needs. A
``Prepared`` stands at module level, has a ``bindparam`` for everything that varies, and keeps its text by dialect.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Dialect
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.dml import UpdateBase


class Prepared:
    """An INSERT, UPDATE or DELETE without RETURNING.

    ``columns``: for an INSERT, those whose values come with each call under their own names.
    """

    def __init__(self, statement: UpdateBase, columns: Sequence[str] | None = None) -> None:
        self._statement = statement
        self._columns = columns
        self._texts: dict[type[Dialect], _Text] = {}

    def run(self, connection: Connection, values: Mapping[str, Any]) -> int:
        """How many rows were inserted or changed. KeyError when a value is missing."""
        text = self._texts.get(type(connection.dialect)) or self._compile(connection.dialect)
        return connection.exec_driver_sql(text.sql, text.arguments(values)).rowcount

    def _compile(self, dialect: Dialect) -> _Text:
        # Two threads may do this at once; they come to the same result.
        compiled = self._statement.compile(dialect=dialect, column_keys=self._columns)
        assert isinstance(compiled, SQLCompiler)
        assert not compiled.post_compile_params, "the text must not depend on values, as that of in_() does"
        text = self._texts[type(dialect)] = _Text(compiled, dialect)
        return text


class _Text:
    """SQL for a driver, and how its arguments are made."""

    def __init__(self, compiled: SQLCompiler, dialect: Dialect) -> None:
        self.sql = compiled.string
        self._order = compiled.positiontup
        self._processors: list[tuple[str, Callable[[Any], Any]]] = []
        self._constants: dict[str, Any] = {}
        for parameter, name in compiled.bind_names.items():
            process = parameter.type.dialect_impl(dialect).bind_processor(dialect)
            if parameter.required and process is not None:
                self._processors.append((name, process))
            elif not parameter.required:
                value = compiled.params[name]
                self._constants[name] = value if process is None else process(value)

    def arguments(self, values: Mapping[str, Any]) -> dict[str, Any] | tuple[Any, ...]:
        merged = {**self._constants, **values}
        for name, process in self._processors:
            merged[name] = process(merged[name])
        return merged if self._order is None else tuple([merged[name] for name in self._order])
