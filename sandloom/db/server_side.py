"""PREPARE and EXECUTE on PostgreSQL: psycopg2 sends text only, which the server would plan anew each time.

A statement is prepared when a session first needs it. Its name holds a hash of its text, so that whoever shares the
session by a pooler means the same by it.
"""

from __future__ import annotations

import hashlib
from typing import Any
from weakref import WeakKeyDictionary

from sqlalchemy import ARRAY, BigInteger, Boolean, Connection, Dialect, Integer, LargeBinary, String
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.types import TypeEngine

from sandloom.telemetry import get_logger

log = get_logger("sandloom.db.server_side")

#: Every statement finds its rows by an index, and its plan is kept for longer than the tables stay small.
SESSION = "-c plan_cache_mode=force_generic_plan -c enable_seqscan=off -c jit=off"

_NO_SUCH_STATEMENT, _STATEMENT_EXISTS = "26000", "42P05"
#: feature_not_supported, of which this is one: cached plan must not change result type.
_PLAN_OUTDATED = "0A000"
#: SQLSTATEs of statements that did nothing but show that the session does not hold what it was believed to hold.
FORGOTTEN = frozenset({_NO_SUCH_STATEMENT, _STATEMENT_EXISTS, _PLAN_OUTDATED})

_TYPES: tuple[tuple[type[TypeEngine[Any]], str], ...] = (
    (LargeBinary, "bytea"),
    (Boolean, "boolean"),
    (BigInteger, "bigint"),
    (Integer, "bigint"),
    (String, "text"),
)


class _Engine:
    """``round`` is part of the names: a new one prepares everything anew."""

    def __init__(self) -> None:
        self.enabled = True
        self.round = 0


#: An engine has a dialect object of its own.
_engines: WeakKeyDictionary[Dialect, _Engine] = WeakKeyDictionary()


def is_possible(dialect: Dialect) -> bool:
    return dialect.name == "postgresql" and dialect.driver == "psycopg2"


def learn(dialect: Dialect, error: Exception) -> None:
    """After an error, before the repetition: sessions that several clients share are not relied upon again, and the
    schema's change makes every session prepare anew."""
    code = getattr(error, "pgcode", None)
    if code not in FORGOTTEN:
        return
    state = _state(dialect)
    if code == _PLAN_OUTDATED:
        state.round += 1
    elif state.enabled:
        state.enabled = False
        log.warning("statements are not kept by the database: its sessions are shared or were reset")


class ServerSide:
    """One statement as the server keeps it."""

    def __init__(self, name: str, compiled: SQLCompiler, dialect: Dialect) -> None:
        places: dict[str, str] = {}
        varying: list[tuple[str, str]] = []
        for parameter, key in compiled.bind_names.items():
            if parameter.required:
                varying.append((key, _type_name(parameter.type)))
                places[key] = f"${len(varying)}"
            else:
                places[key] = str(compiled.render_literal_value(compiled.params[key], parameter.type))
        self._sql = compiled.string % places
        self._types = f" ({', '.join(kind for _, kind in varying)})" if varying else ""
        self._arguments = f" ({', '.join(f'%({key})s' for key, _ in varying)})" if varying else ""
        self._name = f"{name}_{hashlib.sha256((self._types + self._sql).encode()).hexdigest()[:12]}"

    def ready(self, connection: Connection, cursor: Any) -> str | None:
        """The EXECUTE for the driver, with the session prepared for it. None: to be sent as text."""
        state = _state(connection.dialect)
        if not state.enabled:
            return None
        held: set[str] = connection.info.setdefault("sandloom_statements", set())
        name = f"{self._name}_{state.round}"
        if name not in held:
            cursor.execute(f"PREPARE {name}{self._types} AS {self._sql}")
            held.add(name)
        return f"EXECUTE {name}{self._arguments}"


def _state(dialect: Dialect) -> _Engine:
    return _engines.get(dialect) or _engines.setdefault(dialect, _Engine())


def _type_name(kind: TypeEngine[Any]) -> str:
    if isinstance(kind, ARRAY):
        return f"{_type_name(kind.item_type)}[]"
    for family, name in _TYPES:
        if isinstance(kind, family):
            return name
    raise AssertionError(f"a parameter needs one of the types that are known here, not {kind!r}")
