"""the snapshot of a suspended sandbox"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    binary = mysql.VARCHAR(128, charset="utf8mb4", collation="utf8mb4_bin")
    op.add_column(
        "sandboxes", sa.Column("snapshot", sa.String(128).with_variant(binary, "mysql", "mariadb"), nullable=True)
    )
    condition = sa.text("snapshot IS NOT NULL")
    op.create_index(
        "ix_sandboxes_snapshot", "sandboxes", ["snapshot"], postgresql_where=condition, sqlite_where=condition
    )


def downgrade() -> None:
    op.drop_index("ix_sandboxes_snapshot", "sandboxes")
    op.drop_column("sandboxes", "snapshot")
