"""what maintenance looks at next, the newest sandboxes of a tenant, and numbers of the whole deployment"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    binary = mysql.VARCHAR(64, charset="utf8mb4", collation="utf8mb4_bin")
    op.create_table(
        "tallies",
        sa.Column("name", sa.String(64).with_variant(binary, "mysql", "mariadb"), nullable=False),
        sa.Column("value", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_tallies")),
    )
    op.add_column("sandboxes", sa.Column("look_us", sa.BigInteger(), nullable=False, server_default=sa.text("0")))
    op.create_index("ix_sandboxes_look", "sandboxes", ["look_us"])
    condition = sa.text("created_us >= 0")
    op.create_index(
        "ix_sandboxes_recent", "sandboxes", ["tenant_id", "created_us"],
        postgresql_where=condition, sqlite_where=condition,
    )  # fmt: skip


def downgrade() -> None:
    op.drop_index("ix_sandboxes_recent", "sandboxes")
    op.drop_index("ix_sandboxes_look", "sandboxes")
    op.drop_column("sandboxes", "look_us")
    op.drop_table("tallies")
