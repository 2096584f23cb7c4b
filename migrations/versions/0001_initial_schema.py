"""initial schema"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_BYTES = sa.LargeBinary().with_variant(mysql.LONGBLOB(), "mysql", "mariadb")
_DOCUMENT = sa.Text().with_variant(mysql.LONGTEXT(collation="utf8mb4_bin"), "mysql", "mariadb")


def _name(length: int) -> sa.String:
    binary = mysql.VARCHAR(length, charset="utf8mb4", collation="utf8mb4_bin")
    return sa.String(length).with_variant(binary, "mysql", "mariadb")


def upgrade() -> None:
    op.create_table(
        "exec_events",
        sa.Column("tenant_id", _name(64), nullable=False),
        sa.Column("sandbox_id", _name(128), nullable=False),
        sa.Column("exec_id", _name(128), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("kind", _name(32), nullable=False),
        sa.Column("data", _BYTES, nullable=False),
        sa.Column("at_us", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("tenant_id", "sandbox_id", "exec_id", "seq", name=op.f("pk_exec_events")),
    )
    op.create_table(
        "execs",
        sa.Column("tenant_id", _name(64), nullable=False),
        sa.Column("sandbox_id", _name(128), nullable=False),
        sa.Column("exec_id", _name(128), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("worker_id", _name(128), nullable=False),
        sa.Column("worker_epoch", sa.BigInteger(), nullable=False),
        sa.Column("status", _name(16), nullable=False),
        sa.Column("exec_scope", _name(128), nullable=True),
        sa.Column("active_scope", _name(129), nullable=True),
        sa.Column("open_worker_id", _name(128), nullable=True),
        sa.Column("request_hash", _name(64), nullable=False),
        sa.Column("request", _DOCUMENT, nullable=False),
        sa.Column("labels", _DOCUMENT, nullable=False),
        sa.Column("stdin", _BYTES, nullable=True),
        sa.Column("timeout_seconds", sa.Integer(), nullable=False),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("signal", sa.Integer(), nullable=True),
        sa.Column("reason", _name(32), nullable=True),
        sa.Column("detail", _DOCUMENT, nullable=True),
        sa.Column("error", _name(64), nullable=True),
        sa.Column("truncated", sa.Boolean(), nullable=False),
        sa.Column("usage", _DOCUMENT, nullable=True),
        sa.Column("duration_ms", sa.BigInteger(), nullable=True),
        sa.Column("last_seq", sa.BigInteger(), nullable=False),
        sa.Column("task_id", _name(64), nullable=True),
        sa.Column("rings", sa.Integer(), nullable=False),
        sa.Column("ring_us", sa.BigInteger(), nullable=False),
        sa.Column("queued_us", sa.BigInteger(), nullable=False),
        sa.Column("started_us", sa.BigInteger(), nullable=True),
        sa.Column("finished_us", sa.BigInteger(), nullable=True),
        sa.Column("cancel_us", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("tenant_id", "sandbox_id", "exec_id", name=op.f("pk_execs")),
        sa.UniqueConstraint("tenant_id", "sandbox_id", "active_scope", name=op.f("uq_execs_tenant_id")),
    )
    with op.batch_alter_table("execs", schema=None) as batch_op:
        batch_op.create_index("ix_execs_finished", ["finished_us"], unique=False)
        batch_op.create_index("ix_execs_open", ["open_worker_id", "status", "queued_us"], unique=False)
        batch_op.create_index("ix_execs_recent", ["tenant_id", "sandbox_id", "queued_us"], unique=False)

    op.create_table(
        "operations",
        sa.Column("tenant_id", _name(64), nullable=False),
        sa.Column("op_id", _name(64), nullable=False),
        sa.Column("seen_us", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("tenant_id", "op_id", name=op.f("pk_operations")),
    )
    with op.batch_alter_table("operations", schema=None) as batch_op:
        batch_op.create_index("ix_operations_seen", ["seen_us"], unique=False)

    op.create_table(
        "sandbox_history",
        sa.Column("tenant_id", _name(64), nullable=False),
        sa.Column("sandbox_id", _name(128), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("worker_id", _name(128), nullable=False),
        sa.Column("started_us", sa.BigInteger(), nullable=False),
        sa.Column("created_by", _name(128), nullable=False),
        sa.Column("ready_us", sa.BigInteger(), nullable=True),
        sa.Column("released_us", sa.BigInteger(), nullable=True),
        sa.Column("release_reason", _name(64), nullable=True),
        sa.Column("released_by", _name(128), nullable=True),
        sa.PrimaryKeyConstraint("tenant_id", "sandbox_id", "generation", name=op.f("pk_sandbox_history")),
    )
    with op.batch_alter_table("sandbox_history", schema=None) as batch_op:
        batch_op.create_index("ix_sandbox_history_started", ["started_us"], unique=False)

    op.create_table(
        "usage_records",
        sa.Column("tenant_id", _name(64), nullable=False),
        sa.Column("sandbox_id", _name(128), nullable=False),
        sa.Column("exec_id", _name(128), nullable=False),
        sa.Column("workspace_scope_id", _name(191), nullable=False),
        sa.Column("labels", _DOCUMENT, nullable=False),
        sa.Column("cpu_ms", sa.BigInteger(), nullable=False),
        sa.Column("wall_ms", sa.BigInteger(), nullable=False),
        sa.Column("max_rss_bytes", sa.BigInteger(), nullable=False),
        sa.Column("io_bytes", sa.BigInteger(), nullable=False),
        sa.Column("finished_us", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("tenant_id", "sandbox_id", "exec_id", name=op.f("pk_usage_records")),
    )
    with op.batch_alter_table("usage_records", schema=None) as batch_op:
        batch_op.create_index("ix_usage_records_finished", ["tenant_id", "finished_us"], unique=False)

    op.create_table(
        "workers",
        sa.Column("worker_id", _name(128), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("status", _name(16), nullable=False),
        sa.Column("queue", _name(191), nullable=False),
        sa.Column("data_endpoint", _name(255), nullable=False),
        sa.Column("public_key", _name(255), nullable=False),
        sa.Column("profile_id", _name(64), nullable=False),
        sa.Column("declared_hash", _name(64), nullable=False),
        sa.Column("effective_hash", _name(64), nullable=False),
        sa.Column("isolation_rank", sa.Integer(), nullable=False),
        sa.Column("storage_mode", _name(16), nullable=False),
        sa.Column("root_id", _name(64), nullable=False),
        sa.Column("uid_start", sa.Integer(), nullable=False),
        sa.Column("uid_end", sa.Integer(), nullable=False),
        sa.Column("next_uid", sa.Integer(), nullable=False),
        sa.Column("capacity", sa.Integer(), nullable=False),
        sa.Column("exec_slots", sa.Integer(), nullable=False),
        sa.Column("reserved", sa.Integer(), nullable=False),
        sa.Column("renewals", sa.BigInteger(), nullable=False),
        sa.Column("lease_expires_us", sa.BigInteger(), nullable=False),
        sa.Column("registered_us", sa.BigInteger(), nullable=False),
        sa.Column("node", _DOCUMENT, nullable=False),
        sa.Column("load", _DOCUMENT, nullable=False),
        sa.PrimaryKeyConstraint("worker_id", name=op.f("pk_workers")),
    )
    op.create_table(
        "sandboxes",
        sa.Column("tenant_id", _name(64), nullable=False),
        sa.Column("sandbox_id", _name(128), nullable=False),
        sa.Column("workspace_scope_id", _name(191), nullable=False),
        sa.Column("profile_id", _name(64), nullable=False),
        sa.Column("profile_hash", _name(64), nullable=False),
        sa.Column("status", _name(16), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("worker_id", _name(128), nullable=False),
        sa.Column("worker_epoch", sa.BigInteger(), nullable=False),
        sa.Column("root_id", _name(64), nullable=False),
        sa.Column("storage_mode", _name(16), nullable=False),
        sa.Column("sandbox_uid", sa.Integer(), nullable=False),
        sa.Column("held_uid", sa.Integer(), nullable=True),
        sa.Column("workspace", _name(16), nullable=False),
        sa.Column("active_execs", sa.Integer(), nullable=False),
        sa.Column("exclusive_exec_id", _name(128), nullable=True),
        sa.Column("lifecycle_count", sa.Integer(), nullable=False),
        sa.Column("total_lifetime_ms", sa.BigInteger(), nullable=False),
        sa.Column("created_us", sa.BigInteger(), nullable=False),
        sa.Column("assigned_us", sa.BigInteger(), nullable=False),
        sa.Column("ready_us", sa.BigInteger(), nullable=True),
        sa.Column("last_active_us", sa.BigInteger(), nullable=False),
        sa.Column("status_us", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["worker_id"], ["workers.worker_id"], name=op.f("fk_sandboxes_worker_id")),
        sa.PrimaryKeyConstraint("tenant_id", "sandbox_id", name=op.f("pk_sandboxes")),
        sa.UniqueConstraint("root_id", "held_uid", name=op.f("uq_sandboxes_root_id")),
    )
    with op.batch_alter_table("sandboxes", schema=None) as batch_op:
        batch_op.create_index("ix_sandboxes_idle", ["status", "last_active_us"], unique=False)
        batch_op.create_index("ix_sandboxes_worker", ["worker_id", "status"], unique=False)


def downgrade() -> None:
    with op.batch_alter_table("sandboxes", schema=None) as batch_op:
        batch_op.drop_index("ix_sandboxes_worker")
        batch_op.drop_index("ix_sandboxes_idle")

    op.drop_table("sandboxes")
    op.drop_table("workers")
    with op.batch_alter_table("usage_records", schema=None) as batch_op:
        batch_op.drop_index("ix_usage_records_finished")

    op.drop_table("usage_records")
    with op.batch_alter_table("sandbox_history", schema=None) as batch_op:
        batch_op.drop_index("ix_sandbox_history_started")

    op.drop_table("sandbox_history")
    with op.batch_alter_table("operations", schema=None) as batch_op:
        batch_op.drop_index("ix_operations_seen")

    op.drop_table("operations")
    with op.batch_alter_table("execs", schema=None) as batch_op:
        batch_op.drop_index("ix_execs_recent")
        batch_op.drop_index("ix_execs_open")
        batch_op.drop_index("ix_execs_finished")

    op.drop_table("execs")
    op.drop_table("exec_events")
