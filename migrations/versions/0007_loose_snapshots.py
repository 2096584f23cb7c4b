"""snapshots that no sandbox names"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def _name(name: str, length: int = 128) -> sa.Column[str]:
    binary = mysql.VARCHAR(length, charset="utf8mb4", collation="utf8mb4_bin")
    return sa.Column(name, sa.String(length).with_variant(binary, "mysql", "mariadb"), nullable=False)


def upgrade() -> None:
    op.create_table(
        "loose_snapshots",
        _name("tenant_id", 64),
        _name("sandbox_id"),
        _name("snapshot"),
        sa.Column("due_us", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("tenant_id", "sandbox_id", "snapshot", name=op.f("pk_loose_snapshots")),
    )


def downgrade() -> None:
    op.drop_table("loose_snapshots")
