"""The tables. Times are microseconds since the epoch (UTC) by the database's clock; ids compare byte by byte.

``tenants`` before ``sandboxes`` before ``execs`` and ``loose_snapshots``: every transaction that writes them locks them
in this order.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)  # fmt: skip
from sqlalchemy.dialects import mysql

metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
        "ix": "ix_%(table_name)s_%(column_0_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
    }
)

Bytes = LargeBinary().with_variant(mysql.LONGBLOB(), "mysql", "mariadb")
Document = Text().with_variant(mysql.LONGTEXT(collation="utf8mb4_bin"), "mysql", "mariadb")


def _name(length: int = 128) -> String:
    binary = mysql.VARCHAR(length, charset="utf8mb4", collation="utf8mb4_bin")
    return String(length).with_variant(binary, "mysql", "mariadb")


def _us(name: str, nullable: bool = True) -> Column[int]:
    return Column(name, BigInteger, nullable=nullable)


def _sum(name: str) -> Column[int]:
    return Column(name, BigInteger, nullable=False, server_default=text("0"))


def _partial_index(name: str, *columns: str, where: str, unique: bool = False) -> Index:
    """Of all rows on MariaDB.

    What changes with every command stands in no index, so that PostgreSQL writes a row's new version beside the old
    one. No other index than the key serves a look at one row: on tables that were just made all of them seem alike,
    and a prepared statement keeps its plan.
    """
    return Index(name, *columns, unique=unique, postgresql_where=text(where), sqlite_where=text(where))


#: What is added up of usage, by every name that it has.
USAGE_SUMS = ("execs", "cpu_ms", "wall_ms", "memory_mib_ms", "io_bytes", "egress_bytes", "model_tokens")

#: Every exec, in the words of ``ix_execs_recent``, which serves only those who say so.
RECENT = text("queued_us >= 0")
#: Every sandbox, in the words of ``ix_sandboxes_recent``, likewise.
CREATED = text("created_us >= 0")

#: One row per worker id, for ever: ``epoch`` only grows. ``reserved`` is the number of sandboxes that hold a slot and
#: changes in the transaction that changes their status. ``renewals`` is what lease watchers observe. A worker takes no
#: new sandboxes while ``drain_us`` says since when the operator wants it empty, or ``short_of`` what it lacks itself.
workers = Table(
    "workers",
    metadata,
    Column("worker_id", _name(), primary_key=True),
    Column("epoch", BigInteger, nullable=False),
    Column("status", _name(16), nullable=False),
    Column("queue", _name(191), nullable=False),
    Column("data_endpoint", _name(255), nullable=False),
    Column("public_key", _name(255), nullable=False),
    Column("profile_id", _name(64), nullable=False),
    Column("declared_hash", _name(64), nullable=False),
    Column("effective_hash", _name(64), nullable=False),
    Column("isolation_rank", Integer, nullable=False),
    Column("storage_mode", _name(16), nullable=False),
    Column("root_id", _name(64), nullable=False),
    Column("uid_start", Integer, nullable=False),
    Column("uid_end", Integer, nullable=False),
    Column("next_uid", Integer, nullable=False),
    Column("capacity", Integer, nullable=False),
    Column("exec_slots", Integer, nullable=False),
    Column("reserved", Integer, nullable=False),
    Column("renewals", BigInteger, nullable=False),
    _us("lease_expires_us", nullable=False),
    _us("registered_us", nullable=False),
    Column("node", Document, nullable=False),
    Column("load", Document, nullable=False),
    Column("environment", _name(16)),
    _us("drain_us"),
    Column("short_of", _name(16)),
    postgresql_with={"fillfactor": 50},
)

#: ``held_uid`` is ``sandbox_uid`` from resolve until the UID is clean again; then NULL, which frees it; a suspended
#: sandbox without one has no files on any worker. ``snapshot`` names what the object store has to restore or to lose.
#: Whoever looks for sandboxes by owner or status asks for ``held_uid``, since only they are in an index. ``look_us``:
#: maintenance looks at the sandbox no earlier; every move to a status in which something falls due makes it 0.
sandboxes = Table(
    "sandboxes",
    metadata,
    Column("tenant_id", _name(64), nullable=False),
    Column("sandbox_id", _name(), nullable=False),
    Column("workspace_scope_id", _name(191), nullable=False),
    Column("profile_id", _name(64), nullable=False),
    Column("profile_hash", _name(64), nullable=False),
    Column("status", _name(16), nullable=False),
    Column("generation", BigInteger, nullable=False),
    Column("worker_id", _name(), ForeignKey("workers.worker_id"), nullable=False),
    Column("worker_epoch", BigInteger, nullable=False),
    Column("root_id", _name(64), nullable=False),
    Column("storage_mode", _name(16), nullable=False),
    Column("sandbox_uid", Integer, nullable=False),
    Column("held_uid", Integer),
    Column("workspace", _name(16), nullable=False),
    Column("active_execs", Integer, nullable=False),
    Column("exclusive_exec_id", _name()),
    Column("snapshot", _name()),
    Column("lifecycle_count", Integer, nullable=False),
    Column("total_lifetime_ms", BigInteger, nullable=False),
    _us("created_us", nullable=False),
    _us("assigned_us", nullable=False),
    _us("ready_us"),
    _us("last_active_us", nullable=False),
    _us("status_us", nullable=False),
    Column("look_us", BigInteger, nullable=False, server_default=text("0")),
    PrimaryKeyConstraint("tenant_id", "sandbox_id"),
    UniqueConstraint("root_id", "held_uid"),
    _partial_index("ix_sandboxes_held", "worker_id", "held_uid", where="held_uid IS NOT NULL"),
    Index("ix_sandboxes_look", "look_us"),
    _partial_index("ix_sandboxes_recent", "tenant_id", "created_us", where=str(CREATED)),
    _partial_index("ix_sandboxes_snapshot", "snapshot", where="snapshot IS NOT NULL"),
    postgresql_with={"fillfactor": 50},
)

#: Snapshots that no sandbox names and of which the object store may have something; see ``sandloom.sandboxes.loose``.
#: From ``due_us`` on they are removed; 0: nobody can keep them any more.
loose_snapshots = Table(
    "loose_snapshots",
    metadata,
    Column("tenant_id", _name(64), nullable=False),
    Column("sandbox_id", _name(), nullable=False),
    Column("snapshot", _name(), nullable=False),
    _us("due_us", nullable=False),
    PrimaryKeyConstraint("tenant_id", "sandbox_id", "snapshot"),
)

#: One row per generation that was assigned: the audit of a sandbox.
sandbox_history = Table(
    "sandbox_history",
    metadata,
    Column("tenant_id", _name(64), nullable=False),
    Column("sandbox_id", _name(), nullable=False),
    Column("generation", BigInteger, nullable=False),
    Column("worker_id", _name(), nullable=False),
    _us("started_us", nullable=False),
    Column("created_by", _name(128), nullable=False),
    _us("ready_us"),
    _us("released_us"),
    Column("release_reason", _name(64)),
    Column("released_by", _name(128)),
    PrimaryKeyConstraint("tenant_id", "sandbox_id", "generation"),
    Index("ix_sandbox_history_started", "started_us"),
    _partial_index("ix_sandbox_history_alive", "tenant_id", "released_us", where="released_us IS NULL"),
)

#: The exec row is the outbox. ``active_scope`` and ``open_worker_id`` are set while the exec is not terminal and NULL
#: afterwards, so that the unique key holds for running scopes only and the index stays as small as the queue.
execs = Table(
    "execs",
    metadata,
    Column("tenant_id", _name(64), nullable=False),
    Column("sandbox_id", _name(), nullable=False),
    Column("exec_id", _name(), nullable=False),
    Column("generation", BigInteger, nullable=False),
    Column("worker_id", _name(), nullable=False),
    Column("worker_epoch", BigInteger, nullable=False),
    Column("status", _name(16), nullable=False),
    Column("exec_scope", _name()),
    Column("active_scope", _name(129)),
    Column("open_worker_id", _name()),
    Column("request_hash", _name(64), nullable=False),
    Column("request", Document, nullable=False),
    Column("labels", Document, nullable=False),
    Column("stdin", Bytes),
    Column("timeout_seconds", Integer, nullable=False),
    Column("exit_code", Integer),
    Column("signal", Integer),
    Column("reason", _name(32)),
    Column("detail", Document),
    Column("error", _name(64)),
    Column("truncated", Boolean, nullable=False),
    Column("usage", Document),
    Column("duration_ms", BigInteger),
    Column("last_seq", BigInteger, nullable=False),
    Column("task_id", _name(64)),
    Column("rings", Integer, nullable=False),
    _us("ring_us", nullable=False),
    _us("queued_us", nullable=False),
    _us("started_us"),
    _us("finished_us"),
    _us("cancel_us"),
    PrimaryKeyConstraint("tenant_id", "sandbox_id", "exec_id"),
    _partial_index(
        "uq_execs_active_scope",
        "tenant_id",
        "sandbox_id",
        "active_scope",
        where="active_scope IS NOT NULL",
        unique=True,
    ),
    _partial_index("ix_execs_open", "open_worker_id", "queued_us", where="open_worker_id IS NOT NULL"),
    _partial_index("ix_execs_recent", "tenant_id", "sandbox_id", "queued_us", where=str(RECENT)),
    _partial_index("ix_execs_finished", "finished_us", where="finished_us IS NOT NULL"),
    postgresql_with={"fillfactor": 80},
)

#: The trace: ``seq`` from 1, dense per exec. ``data`` is at most 64 KiB: raw bytes of output, or JSON.
exec_events = Table(
    "exec_events",
    metadata,
    Column("tenant_id", _name(64), nullable=False),
    Column("sandbox_id", _name(), nullable=False),
    Column("exec_id", _name(), nullable=False),
    Column("seq", BigInteger, nullable=False),
    Column("kind", _name(32), nullable=False),
    Column("data", Bytes, nullable=False),
    _us("at_us", nullable=False),
    PrimaryKeyConstraint("tenant_id", "sandbox_id", "exec_id", "seq"),
)

#: One row per exec that ended, written by the transaction that ended it.
usage_records = Table(
    "usage_records",
    metadata,
    Column("tenant_id", _name(64), nullable=False),
    Column("sandbox_id", _name(), nullable=False),
    Column("exec_id", _name(), nullable=False),
    Column("workspace_scope_id", _name(191), nullable=False),
    Column("labels", Document, nullable=False),
    Column("cpu_ms", BigInteger, nullable=False),
    Column("wall_ms", BigInteger, nullable=False),
    Column("max_rss_bytes", BigInteger, nullable=False),
    Column("io_bytes", BigInteger, nullable=False),
    _us("finished_us", nullable=False),
    _sum("memory_mib_ms"),
    _sum("egress_bytes"),
    _sum("model_tokens"),
    PrimaryKeyConstraint("tenant_id", "sandbox_id", "exec_id"),
    Index("ix_usage_records_finished", "tenant_id", "finished_us"),
)

#: Sums of the usage records that were pruned, by day (since the epoch, UTC) and sandbox; and ``stored_bytes``, the most
#: that was measured there on that day.
usage_days = Table(
    "usage_days",
    metadata,
    Column("tenant_id", _name(64), nullable=False),
    Column("day", BigInteger, nullable=False),
    Column("sandbox_id", _name(), nullable=False),
    Column("workspace_scope_id", _name(191), nullable=False),
    *map(_sum, USAGE_SUMS),
    _sum("stored_bytes"),
    PrimaryKeyConstraint("tenant_id", "day", "sandbox_id", "workspace_scope_id"),
    Index("ix_usage_days_day", "day"),
)

#: What an operator allows a tenant; NULL: any. Whoever admits something for a tenant that has a bound locks its row
#: first, before every other, so that no two are admitted by one count.
tenants = Table(
    "tenants",
    metadata,
    Column("tenant_id", _name(64), primary_key=True),
    Column("sandboxes", BigInteger),
    Column("open_execs", BigInteger),
    Column("queued_execs", BigInteger),
    Column("cpu_seconds_a_day", BigInteger),
    Column("model_tokens_a_day", BigInteger),
    Column("storage_bytes", BigInteger),
)

#: ``hash``: a keyed hash of the key, which is nowhere else. ``scopes``: words with a space between them. What was
#: revoked has expired, too.
api_keys = Table(
    "api_keys",
    metadata,
    Column("key_id", _name(96), primary_key=True),
    Column("tenant_id", _name(64), nullable=False),
    Column("name", _name(64), nullable=False),
    Column("hash", _name(64), nullable=False),
    Column("scopes", _name(64), nullable=False),
    Column("created_by", _name(128), nullable=False),
    _us("created_us", nullable=False),
    _us("expires_us"),
    _us("revoked_us"),
    Index("ix_api_keys_tenant", "tenant_id", "created_us"),
    Index("ix_api_keys_expires", "expires_us"),
)

#: File calls that change something, so that a repeated message does nothing.
operations = Table(
    "operations",
    metadata,
    Column("tenant_id", _name(64), nullable=False),
    Column("op_id", _name(64), nullable=False),
    _us("seen_us", nullable=False),
    PrimaryKeyConstraint("tenant_id", "op_id"),
    Index("ix_operations_seen", "seen_us"),
)

#: Numbers of the whole deployment, one row for each name in the code: what maintenance did, and the highest epoch and
#: generation among the rows that were pruned.
tallies = Table(
    "tallies",
    metadata,
    Column("name", _name(64), primary_key=True),
    Column("value", BigInteger, nullable=False),
)
