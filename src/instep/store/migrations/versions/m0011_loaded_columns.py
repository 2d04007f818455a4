"""Which columns the last load of each table has read, and which of them hashed."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from instep.store.columns import Utc

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    op.create_table(
        "loaded_columns",
        sa.Column("connection", sa.String(), nullable=False),
        sa.Column("table_schema", sa.String(), nullable=False),
        sa.Column("table_name", sa.String(), nullable=False),
        sa.Column("columns", sa.JSON(), nullable=False),
        sa.Column("at", Utc(), nullable=False),
        sa.ForeignKeyConstraint(["connection"], ["connections.name"], name="fk_loaded_columns_connection"),
        sa.PrimaryKeyConstraint("connection", "table_schema", "table_name", name="pk_loaded_columns"),
    )


def downgrade() -> None:
    op.drop_table("loaded_columns")
