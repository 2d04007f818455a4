"""By which row filter each table was loaded last; empty: all rows."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    with op.batch_alter_table("loaded_columns") as table:
        table.add_column(sa.Column("filter", sa.JSON(), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("loaded_columns") as table:
        table.drop_column("filter")
