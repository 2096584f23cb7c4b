"""tenants with their quotas and keys, and usage that outlives its commands"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

_SUMS = ("execs", "cpu_ms", "wall_ms", "memory_mib_ms", "io_bytes", "egress_bytes", "model_tokens", "stored_bytes")
_QUOTAS = ("sandboxes", "open_execs", "queued_execs", "cpu_seconds_a_day", "model_tokens_a_day", "storage_bytes")


def _name(name: str, length: int = 128) -> sa.Column[str]:
    binary = mysql.VARCHAR(length, charset="utf8mb4", collation="utf8mb4_bin")
    return sa.Column(name, sa.String(length).with_variant(binary, "mysql", "mariadb"), nullable=False)


def _sum(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger(), nullable=False, server_default=sa.text("0"))


def upgrade() -> None:
    op.create_table(
        "tenants",
        _name("tenant_id", 64),
        *(sa.Column(name, sa.BigInteger(), nullable=True) for name in _QUOTAS),
        sa.PrimaryKeyConstraint("tenant_id", name=op.f("pk_tenants")),
    )
    op.create_table(
        "api_keys",
        _name("key_id", 96),
        _name("tenant_id", 64),
        _name("name", 64),
        _name("hash", 64),
        _name("scopes", 64),
        _name("created_by"),
        sa.Column("created_us", sa.BigInteger(), nullable=False),
        sa.Column("expires_us", sa.BigInteger(), nullable=True),
        sa.Column("revoked_us", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("key_id", name=op.f("pk_api_keys")),
    )
    op.create_index("ix_api_keys_tenant", "api_keys", ["tenant_id", "created_us"])
    op.create_index("ix_api_keys_expires", "api_keys", ["expires_us"])
    op.create_table(
        "usage_days",
        _name("tenant_id", 64),
        sa.Column("day", sa.BigInteger(), nullable=False),
        _name("sandbox_id"),
        _name("workspace_scope_id", 191),
        *map(_sum, _SUMS),
        sa.PrimaryKeyConstraint(
            "tenant_id", "day", "sandbox_id", "workspace_scope_id", name=op.f("pk_usage_days")
        ),
    )  # fmt: skip
    op.create_index("ix_usage_days_day", "usage_days", ["day"])
    for name in ("memory_mib_ms", "egress_bytes", "model_tokens"):
        op.add_column("usage_records", _sum(name))
    condition = sa.text("released_us IS NULL")
    op.create_index(
        "ix_sandbox_history_alive", "sandbox_history", ["tenant_id", "released_us"],
        postgresql_where=condition, sqlite_where=condition,
    )  # fmt: skip


def downgrade() -> None:
    op.drop_index("ix_sandbox_history_alive", "sandbox_history")
    for name in ("model_tokens", "egress_bytes", "memory_mib_ms"):
        op.drop_column("usage_records", name)
    for table in ("usage_days", "api_keys", "tenants"):
        op.drop_table(table)
