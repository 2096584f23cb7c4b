"""The database's own clock as an SQL expression."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import GenericFunction


class now_us(GenericFunction[int]):
    """Microseconds since the epoch, UTC, when the statement began: constant in it, so that indexes can be searched."""

    type = BigInteger()
    inherit_cache = True
    name = "now_us"


@compiles(now_us, "postgresql")
def _postgresql(element: now_us, compiler: Any, **kwargs: Any) -> str:
    return "CAST(extract(epoch FROM statement_timestamp()) * 1000000 AS BIGINT)"


@compiles(now_us, "sqlite")
def _sqlite(element: now_us, compiler: Any, **kwargs: Any) -> str:
    return "CAST(ROUND((julianday('now') - 2440587.5) * 86400000) * 1000 AS INTEGER)"


@compiles(now_us, "mysql", "mariadb")
def _mysql(element: now_us, compiler: Any, **kwargs: Any) -> str:
    return "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"
