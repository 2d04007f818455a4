"""Tables that were kept beside the ones that took their place."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from instep.store.columns import Utc

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.create_table(
        "copies",
        sa.Column("number", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("connection", sa.String(), nullable=False),
        sa.Column("table_schema", sa.String(), nullable=False),
        sa.Column("table_name", sa.String(), nullable=False),
        sa.Column("namespace", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("why", sa.Text(), server_default="", nullable=False),
        sa.Column("rows", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("at", Utc(), nullable=False),
        sa.Column("ended", Utc(), nullable=True),
        sa.ForeignKeyConstraint(["connection"], ["connections.name"], name="fk_copies_connection"),
        sa.PrimaryKeyConstraint("number", name="pk_copies"),
        sqlite_autoincrement=True,
    )


def downgrade() -> None:
    op.drop_table("copies")
