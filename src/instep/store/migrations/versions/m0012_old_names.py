"""Names that tables and columns had before they were renamed, and until when readers can go on using them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from instep.store.columns import Utc

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    op.create_table(
        "old_names",
        sa.Column("number", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("connection", sa.String(), nullable=False),
        sa.Column("namespace", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("column_name", sa.String(), nullable=False),
        sa.Column("old", sa.String(), nullable=False),
        sa.Column("until", Utc(), nullable=False),
        sa.Column("at", Utc(), nullable=False),
        sa.Column("batch", sa.Text(), nullable=False, server_default=""),
        sa.Column("shown", sa.Text(), nullable=False, server_default=""),
        sa.Column("trouble", sa.Text(), nullable=False, server_default=""),
        sa.ForeignKeyConstraint(["connection"], ["connections.name"], name="fk_old_names_connection"),
        sa.PrimaryKeyConstraint("number", name="pk_old_names"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_old_names_connection", "old_names", ["connection"])


def downgrade() -> None:
    op.drop_table("old_names")
