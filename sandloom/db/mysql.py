"""MariaDB and MySQL: how a session is set up, and what the server must offer."""

from __future__ import annotations

import contextlib
import socket
from typing import Any

from sqlalchemy import Connection, Engine, event

#: Lock wait timeout, deadlock, and a row that changed since it was read: the whole transaction is repeated.
RETRY_CODES = frozenset({1205, 1213, 1020})
#: An insert of a MiB of input is sent as text, in which a byte may take two; the rest is for the request beside it.
MIN_PACKET_BYTES = 8 << 20
_ISOLATION = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"
_SQL_MODE = "STRICT_ALL_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION"
#: Seconds; the same bounds as for PostgreSQL.
_LOCKS = "SET SESSION innodb_lock_wait_timeout = 10, lock_wait_timeout = 10"
_IDLE = "SET SESSION idle_transaction_timeout = 60"
#: (option, value): a peer that vanished is noticed by the kernel, never waited for without bound.
_SOCKET_OPTIONS = (
    (socket.TCP_KEEPIDLE, 5),
    (socket.TCP_KEEPINTVL, 2),
    (socket.TCP_KEEPCNT, 3),
    (socket.TCP_USER_TIMEOUT, 15_000),
)
_LOOKED_AT = (
    "max_allowed_packet", "sql_mode", "tx_isolation", "transaction_isolation", "character_set_client",
    "character_set_connection", "log_bin", "binlog_format",
    "default_storage_engine",
)  # fmt: skip


def connect_arguments(connect_timeout_seconds: int) -> dict[str, Any]:
    """For the driver, in addition to what the URL says."""
    return {"connect_timeout": connect_timeout_seconds, "charset": "utf8mb4", "sql_mode": _SQL_MODE}


def prepare(engine: Engine) -> None:
    """Every new session gets its settings."""

    @event.listens_for(engine, "connect")
    def _connect(raw: Any, record: object) -> None:
        _bound_silence(getattr(raw, "_sock", None))
        with raw.cursor() as cursor:
            cursor.execute(_ISOLATION)
            cursor.execute(_LOCKS)
            if "MariaDB" in raw.get_server_info():
                cursor.execute(_IDLE)


def _bound_silence(link: Any) -> None:
    if isinstance(link, socket.socket) and link.family in (socket.AF_INET, socket.AF_INET6):
        link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _SOCKET_OPTIONS:
            with contextlib.suppress(OSError):
                link.setsockopt(socket.IPPROTO_TCP, option, value)


def shortcomings(connection: Connection) -> list[str]:
    """What of the server or of this session would break a promise, each with what to set."""
    wanted = ", ".join(f"'{name}'" for name in _LOOKED_AT)
    rows = connection.exec_driver_sql(f"SHOW SESSION VARIABLES WHERE Variable_name IN ({wanted})").all()
    have = {str(name): str(value) for name, value in rows}
    problems = []
    if int(have["max_allowed_packet"]) < MIN_PACKET_BYTES:
        problems.append(f"max_allowed_packet is {have['max_allowed_packet']}; set it to {2 * MIN_PACKET_BYTES}")
    if "STRICT_ALL_TABLES" not in have["sql_mode"]:
        problems.append("sql_mode of the session is not strict; something between resets it")
    if have.get("transaction_isolation", have.get("tx_isolation")) != "READ-COMMITTED":
        problems.append("the session's isolation is not READ COMMITTED; something between resets it")
    if {have["character_set_client"], have["character_set_connection"]} != {"utf8mb4"}:
        problems.append("the session does not speak utf8mb4; remove what overrides it")
    if have["log_bin"] == "ON" and have["binlog_format"] == "STATEMENT":
        problems.append("binlog_format is STATEMENT, which refuses READ COMMITTED; set it to ROW or MIXED")
    if have["default_storage_engine"] != "InnoDB":
        problems.append(f"default_storage_engine is {have['default_storage_engine']}; set it to InnoDB")
    return problems
