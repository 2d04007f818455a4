"""The keys and cursors that people chose for tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from instep.store.columns import Utc

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.create_table(
        "table_choices",
        sa.Column("connection", sa.String(), nullable=False),
        sa.Column("table_schema", sa.String(), nullable=False),
        sa.Column("table_name", sa.String(), nullable=False),
        sa.Column("what", sa.String(), nullable=False),
        sa.Column("value", sa.JSON(), nullable=False),
        sa.Column("start", sa.Text(), server_default="", nullable=False),
        sa.Column("who", sa.Text(), server_default="", nullable=False),
        sa.Column("at", Utc(), nullable=False),
        sa.ForeignKeyConstraint(["connection"], ["connections.name"], name="fk_table_choices_connection"),
        sa.PrimaryKeyConstraint("connection", "table_schema", "table_name", "what", name="pk_table_choices"),
    )


def downgrade() -> None:
    op.drop_table("table_choices")
