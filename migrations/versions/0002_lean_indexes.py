"""indexes that a command's moves need not touch, and that no look at one row can be led astray by"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

#: Room on a page for the next version of a row, per cent.
_FILL = {"sandboxes": 50, "execs": 80, "workers": 50}


def _create(name: str, table: str, columns: list[str], where: str, unique: bool = False) -> None:
    condition = sa.text(where)
    op.create_index(name, table, columns, unique=unique, postgresql_where=condition, sqlite_where=condition)


def upgrade() -> None:
    # The new index first: a foreign key of MariaDB needs one that begins with worker_id.
    _create("ix_sandboxes_held", "sandboxes", ["worker_id", "held_uid"], "held_uid IS NOT NULL")
    op.drop_index("ix_sandboxes_worker", "sandboxes")
    op.drop_index("ix_sandboxes_idle", "sandboxes")
    for name in ("ix_execs_finished", "ix_execs_open", "ix_execs_recent"):
        op.drop_index(name, "execs")
    with op.batch_alter_table("execs") as execs:
        execs.drop_constraint("uq_execs_tenant_id", type_="unique")
    scope = ["tenant_id", "sandbox_id", "active_scope"]
    _create("uq_execs_active_scope", "execs", scope, "active_scope IS NOT NULL", unique=True)
    _create("ix_execs_open", "execs", ["open_worker_id", "queued_us"], "open_worker_id IS NOT NULL")
    _create("ix_execs_recent", "execs", ["tenant_id", "sandbox_id", "queued_us"], "queued_us >= 0")
    _create("ix_execs_finished", "execs", ["finished_us"], "finished_us IS NOT NULL")
    if op.get_context().dialect.name == "postgresql":
        for table, percent in _FILL.items():
            op.execute(f"ALTER TABLE {table} SET (fillfactor = {percent})")


def downgrade() -> None:
    if op.get_context().dialect.name == "postgresql":
        for table in _FILL:
            op.execute(f"ALTER TABLE {table} RESET (fillfactor)")
    for name in ("ix_execs_finished", "ix_execs_open", "ix_execs_recent", "uq_execs_active_scope"):
        op.drop_index(name, "execs")
    with op.batch_alter_table("execs") as execs:
        execs.create_unique_constraint("uq_execs_tenant_id", ["tenant_id", "sandbox_id", "active_scope"])
    op.create_index("ix_execs_recent", "execs", ["tenant_id", "sandbox_id", "queued_us"])
    op.create_index("ix_execs_open", "execs", ["open_worker_id", "status", "queued_us"])
    op.create_index("ix_execs_finished", "execs", ["finished_us"])
    op.create_index("ix_sandboxes_idle", "sandboxes", ["status", "last_active_us"])
    op.create_index("ix_sandboxes_worker", "sandboxes", ["worker_id", "status"])
    op.drop_index("ix_sandboxes_held", "sandboxes")
