"""What an approval has seen, snoozed changes, and renames that a person named."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from instep.store.columns import Utc

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.add_column("reviews", sa.Column("tables_fingerprint", sa.Text(), server_default="", nullable=False))
    op.add_column("reviews", sa.Column("snoozed_until", Utc(), nullable=True))
    op.create_table(
        "mappings",
        sa.Column("number", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("connection", sa.String(), nullable=False),
        sa.Column("table_schema", sa.String(), nullable=False),
        sa.Column("table_name", sa.String(), nullable=False),
        sa.Column("old", sa.Text(), server_default="", nullable=False),
        sa.Column("new", sa.Text(), server_default="", nullable=False),
        sa.Column("who", sa.Text(), server_default="", nullable=False),
        sa.Column("at", Utc(), nullable=False),
        sa.Column("ended", Utc(), nullable=True),
        sa.ForeignKeyConstraint(["connection"], ["connections.name"], name="fk_mappings_connection"),
        sa.PrimaryKeyConstraint("number", name="pk_mappings"),
        sqlite_autoincrement=True,
    )


def downgrade() -> None:
    op.drop_table("mappings")
    op.drop_column("reviews", "snoozed_until")
    op.drop_column("reviews", "tables_fingerprint")
