"""Where cursors stood when columns were first seen."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from instep.store.columns import Utc

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    op.create_table(
        "watermarks",
        sa.Column("connection", sa.String(), nullable=False),
        sa.Column("table_key", sa.String(), nullable=False),
        sa.Column("column_key", sa.String(), nullable=False),
        sa.Column("cursor", sa.Text(), nullable=False),
        sa.Column("at", Utc(), nullable=False),
        sa.ForeignKeyConstraint(["connection"], ["connections.name"], name="fk_watermarks_connection"),
        sa.PrimaryKeyConstraint("connection", "table_key", "column_key", name="pk_watermarks"),
    )


def downgrade() -> None:
    op.drop_table("watermarks")
