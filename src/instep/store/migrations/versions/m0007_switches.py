"""What people have switched on, off or hashed by command."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from instep.store.columns import Utc

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    op.create_table(
        "switches",
        sa.Column("connection", sa.String(), nullable=False),
        sa.Column("table_schema", sa.String(), nullable=False),
        sa.Column("table_name", sa.String(), nullable=False),
        sa.Column("column_name", sa.String(), nullable=False),
        sa.Column("enabled", sa.Boolean(), nullable=True),
        sa.Column("hashed", sa.Boolean(), nullable=True),
        sa.Column("table_id", sa.Text(), nullable=True),
        sa.Column("column_id", sa.Text(), nullable=True),
        sa.Column("identity", sa.Text(), server_default="", nullable=False),
        sa.Column("who", sa.Text(), server_default="", nullable=False),
        sa.Column("at", Utc(), nullable=False),
        sa.ForeignKeyConstraint(["connection"], ["connections.name"], name="fk_switches_connection"),
        sa.PrimaryKeyConstraint("connection", "table_schema", "table_name", "column_name", name="pk_switches"),
    )


def downgrade() -> None:
    op.drop_table("switches")
