"""what keeps a worker from taking sandboxes: its environment, the operator's wish, a disk that is full"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def _word() -> sa.String:
    binary = mysql.VARCHAR(16, charset="utf8mb4", collation="utf8mb4_bin")
    return sa.String(16).with_variant(binary, "mysql", "mariadb")


def upgrade() -> None:
    op.add_column("workers", sa.Column("environment", _word(), nullable=True))
    op.add_column("workers", sa.Column("drain_us", sa.BigInteger(), nullable=True))
    op.add_column("workers", sa.Column("short_of", _word(), nullable=True))


def downgrade() -> None:
    for name in ("short_of", "drain_us", "environment"):
        op.drop_column("workers", name)
